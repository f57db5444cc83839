"""Runs: the only part of Rote that touches disk."""
