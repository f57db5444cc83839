"""Models by what they can do; `rote.load` gives one that returns next-token logits."""
