"""HTTP service for saved models: a JSON API and a web page."""
