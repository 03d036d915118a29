"""Matching of label names in texts, and the scorer that ranks the matches."""
