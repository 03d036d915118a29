"""Neural networks on torch: document readers, encoders, heads, label trees, and the one training loop."""
