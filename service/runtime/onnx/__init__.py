"""ONNX Runtime on the CPU, a full peer of TensorRT."""
