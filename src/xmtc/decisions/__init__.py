"""From scores to probabilities and sets of labels: calibration, thresholds, combining several rankings."""
