"""Numbers that several packages agree on; without imports, so that the command line starts fast."""

PROPENSITY_A = 0.55
PROPENSITY_B = 1.5
"""Constants of the propensity model that most data sets use (Jain, Prabhu and Varma, 2016)."""
