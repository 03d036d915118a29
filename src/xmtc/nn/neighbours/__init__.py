"""Nearest neighbours among dense vectors."""
