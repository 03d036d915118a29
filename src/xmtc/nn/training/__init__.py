"""The training loop and its parts: objectives, losses, optimisers, weight averaging, process groups."""
