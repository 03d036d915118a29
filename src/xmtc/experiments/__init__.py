"""Suites of data sets × models × seeds, their runs and results, tuning, the papers' studies, and the report."""
