"""Benchmark suites (datasets × models × seeds), their runs and results, tuning, studies and reports."""
