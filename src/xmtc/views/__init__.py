"""Plots (matplotlib) and HTML pages (Jinja2 templates) with a common theme."""
