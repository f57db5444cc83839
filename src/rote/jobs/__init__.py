"""What the commands do, one module each: they tie the other rooms together."""
