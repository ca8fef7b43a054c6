"""CUDA by small objects: streams, events, memory, copies and graphs, every return value checked once."""
