"""Constants shared by several packages; without imports, so that the command line starts fast."""

PROPENSITY_A = 0.55
PROPENSITY_B = 1.5
"""Constants of the propensity model used for most data sets (Jain, Prabhu and Varma, 2016)."""
