"""Reading and writing of datasets: one reader and one writer per format behind `read`, `stream` and `write`."""

from xmtc.core.lazy import lazy_names

_HOMES = {
    "BadLines": "xmtc.data.records",
    "ReadOptions": "xmtc.data.records",
    "read": "xmtc.data.reading",
    "read_vocabulary": "xmtc.data.vocabularies",
    "stream": "xmtc.data.reading",
    "write": "xmtc.data.formats",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
