"""The model folder: its store and arrays, dependencies on other folders, and the training workspace."""
