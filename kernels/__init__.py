"""CUDA kernels for what happens around the model, compiled where they run, each with its NumPy reference."""
