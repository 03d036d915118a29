"""Label trees with a network per level."""
