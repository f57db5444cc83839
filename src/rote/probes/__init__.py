"""Probes: what a chat model knows of a text, asked in words."""
