"""Nearest neighbours among dense vectors: exact, within clusters, or with FAISS."""
