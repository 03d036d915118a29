"""The models: `base.py` defines the contract, `registry.py` lists them, and each model is one file."""
