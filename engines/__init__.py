"""Offline work on models: the demo repository, and plans built from ONNX models."""
