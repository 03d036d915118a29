"""Labels: features, clustering, trees, graphs, label vectors and their layout, groups, propensities."""
