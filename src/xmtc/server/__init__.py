"""Saved models behind HTTP: a service that programs call, and a page for people."""
