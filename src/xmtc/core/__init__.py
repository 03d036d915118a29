"""Foundation of all packages: errors, settings, requests, registry, files and locks, kernels, progress."""
