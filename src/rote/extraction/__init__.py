"""Extraction: how likely a model is to give back the suffix it should know, verbatim or nearly."""
