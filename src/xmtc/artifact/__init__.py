"""The model folder: arrays, dependencies on other folders, the training workspace."""
