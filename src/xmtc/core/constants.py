"""Constants and types shared by several packages. Nothing heavy is imported, so that the command line starts fast."""

from typing import Literal

PROPENSITY_A = 0.55
PROPENSITY_B = 1.5
"""Parameters of the propensity model that most data sets use (Jain, Prabhu and Varma, 2016)."""

TORCH_VERSION = "2.13.0"
"""The PyTorch release that xmtc is tested with, as pinned in constraints.txt."""
TORCH_EXTRAS = frozenset({"torch", "transformers", "all"})
"""Extras of xmtc that install PyTorch."""

Redundant = Literal["keep", "narrowest", "broadest"]
"""Which labels to return of a label and its broader ones: all, the narrowest or the broadest."""
