"""The engine side by itself: what lanes reach, host to host and without HTTP, against the device's own ceiling."""
