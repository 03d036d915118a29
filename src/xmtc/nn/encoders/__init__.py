"""Encoders: map embedded words to a state for each word or a vector for each document."""
