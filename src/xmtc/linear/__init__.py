"""CPU kernels over sparse rows: linear classifiers in trees, beam search, nearest neighbours, low-rank maps."""
