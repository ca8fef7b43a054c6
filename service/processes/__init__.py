"""A server of several processes: one supervises, one runs the models, the others talk HTTP."""
