"""Texts and corpora turned into examples. Knows tokenizers, never models."""
