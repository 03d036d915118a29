"""Neural parts on torch: embeddings, encoders, label attention, heads, optimiser, and the one training loop."""
