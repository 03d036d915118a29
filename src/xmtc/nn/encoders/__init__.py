"""Encoders: embedded tokens to a state per token or a vector per document."""
