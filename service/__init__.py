"""Inferlane: an inference server that batches, and explains itself."""

__version__ = "0.1.0"
