"""Operations behind the command line and the server, one module per command; `requests` defines their parameters."""
