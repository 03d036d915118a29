"""Networks as ONNX graphs: stored, checked and run without PyTorch."""
