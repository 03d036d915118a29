"""`python -m xmtc.server.worker`: one of several processes of a service, started by `processes`."""

from __future__ import annotations

import sys

from xmtc.core.errors import XmtcError
from xmtc.server.processes import work

if __name__ == "__main__":
    try:
        work(*map(int, sys.argv[1:4]))
    except XmtcError as error:
        print(f"xmtc: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
