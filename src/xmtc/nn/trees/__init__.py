"""Label trees with a network for each level."""
