"""Membership: how likely a model finds whole texts, and what the standard scores make of it."""
