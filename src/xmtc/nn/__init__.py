"""Neural networks on PyTorch: document readers, encoders, heads, label trees, and one training loop."""
