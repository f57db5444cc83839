"""Membership scores against what is known: labels, held-out texts, and what could be told without a model."""
