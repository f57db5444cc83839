"""Attacks: given prefixes alone, guess what follows."""
