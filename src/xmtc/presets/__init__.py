"""Presets: train several models within a time limit, and combine the best of them."""
