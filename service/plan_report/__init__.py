"""`inferlane inspect`: what a plan is, where it was built, and whether this machine can run it."""
