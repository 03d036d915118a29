"""Files to datasets and back: one reader and one writer per format behind `read`, `stream` and `write`."""

from xmtc.data.formats import write
from xmtc.data.reading import read, stream
from xmtc.data.records import BadLines, ReadOptions
from xmtc.data.vocabularies import read_vocabulary

__all__ = ["BadLines", "ReadOptions", "read", "read_vocabulary", "stream", "write"]
