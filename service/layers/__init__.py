"""From what a runtime tells of its layers to what the diagnosis reads: FLOPs, bytes, tensor cores, ONNX nodes."""
