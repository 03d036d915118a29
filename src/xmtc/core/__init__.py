"""Base of all packages: errors, settings, requests, registry and entry points, files and locks, kernels, progress."""
