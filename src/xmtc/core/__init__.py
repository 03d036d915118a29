"""What everything stands on: errors, settings, files, kernels, progress and the runtime."""
