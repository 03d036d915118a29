"""The command line: one module per verb; arguments in, one workflow call, text out."""
