<<<<<<< HEAD
"""Presets: choose, train and combine models for a data set within a time limit."""
=======
"""Presets: find a good model for documents without choosing models and settings by hand."""
>>>>>>> 02ee7bd8f99b8d72ef0b97c0a6c92dccbbb89203
