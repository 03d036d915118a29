"""One file per system; `base.py` is the contract."""
