"""Presets: choose, train and combine models for a data set within a time limit."""
