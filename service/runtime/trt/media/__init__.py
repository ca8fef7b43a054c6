"""Tasks on the device: kernels before and after an engine, in one graph with it."""
