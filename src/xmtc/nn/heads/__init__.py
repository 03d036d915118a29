"""Heads: encoded documents to label logits, and how these are learnt."""
