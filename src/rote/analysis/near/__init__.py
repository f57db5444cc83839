"""Pure functions on the near-verbatim columns of a score table."""
