"""Presets: find a good model for documents without choosing models and settings by hand."""
