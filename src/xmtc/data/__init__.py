"""Files to datasets: one reader per format behind `read` and `stream`."""

from xmtc.data.reading import read, stream
from xmtc.data.vocabularies import read_vocabulary

__all__ = ["read", "read_vocabulary", "stream"]
