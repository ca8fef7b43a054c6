"""TensorRT: plans checked, engines shared, a lane of bound contexts and CUDA Graphs per thread."""
