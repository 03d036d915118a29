"""Presets: models whose settings are chosen from the data."""
