"""The training loop and what it uses: losses, optimisers, averaging, process groups."""
