"""Analysis: pure functions from the score table to the numbers a report shows. No disk, no models."""
