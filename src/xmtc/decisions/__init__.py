"""From scores to probabilities and to sets of labels."""
