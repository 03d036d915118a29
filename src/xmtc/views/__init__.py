"""Plots as SVG, drawn by hand: nothing to install, sharp in a paper and in a browser."""
