"""Many runs together: suites of data sets × models × seeds, tuning, the papers' studies, and the report on them."""
