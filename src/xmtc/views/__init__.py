"""Plots by matplotlib and pages from Jinja2 templates, in one theme."""
