"""Heads: encoded documents to label logits."""
