"""Distances that Rote does not have, each a file: what adding one takes."""
