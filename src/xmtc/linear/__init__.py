"""CPU kernels on sparse rows: trees of linear classifiers, beam search, nearest neighbours, low-rank maps."""
