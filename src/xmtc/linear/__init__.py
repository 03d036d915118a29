"""CPU kernels over sparse rows: neighbours, linear classifiers, the best few of many scores."""
