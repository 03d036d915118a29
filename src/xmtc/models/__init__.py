"""The models: `base.py` is the contract, `registry.py` lists them, and each system is one file."""
