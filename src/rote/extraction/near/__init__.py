"""Near-verbatim extraction: outputs within a few edits of the suffix, found, bounded and certified."""
