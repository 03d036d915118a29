"""Saved models behind HTTP: an API for programs, and a page for people."""
