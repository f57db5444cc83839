"""Plots drawn with matplotlib."""
