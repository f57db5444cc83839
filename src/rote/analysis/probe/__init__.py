"""What answers of chat models come to: scores of texts, thresholds, and how well these tell members."""
