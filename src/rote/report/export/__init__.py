"""Results in the shape of other programs."""
