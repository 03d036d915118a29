"""The command line: a thin shell over workflows."""
