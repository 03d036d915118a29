"""Heads: map encoded documents to label logits, and compute their gradients."""
