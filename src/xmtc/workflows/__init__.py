"""The verbs that the command line and the server call, one module each; `requests` holds what they take."""
