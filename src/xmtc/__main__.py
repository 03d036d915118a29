"""`python -m xmtc` is `xmtc`."""

from xmtc.cli.main import main

if __name__ == "__main__":
    main()
