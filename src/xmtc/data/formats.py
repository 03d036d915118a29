"""Registry of data formats: detection, and choice of the format to write."""

from __future__ import annotations

from pathlib import Path

from xmtc.core.errors import DataError, nearest, shown
from xmtc.core.files import is_compressed, plain_name
from xmtc.core.registry import Entry, Registry
from xmtc.data.dataset import Dataset
from xmtc.data.format import FileHead, Format

FORMATS: Registry[Format] = Registry(
    group="xmtc.formats",
    noun="format",
    builtin={  # the first format that recognises a file is used
        "annif-folder": Entry("xmtc.data.annif:ANNIF_FOLDER"),
        "parquet": Entry("xmtc.data.parquet:PARQUET"),
        "npz": Entry("xmtc.data.matrices:NPZ"),
        "attentionxml": Entry("xmtc.data.attentionxml:ATTENTIONXML"),
        "lf": Entry("xmtc.data.lf:LF"),
        "jsonl": Entry("xmtc.data.jsonl:JSONL"),
        "annif": Entry("xmtc.data.annif:ANNIF"),
        "csv": Entry("xmtc.data.tables:CSV"),
        "tsv": Entry("xmtc.data.tables:TSV"),
        "xmlrepo": Entry("xmtc.data.sparse:XMLREPO"),
        "libsvm": Entry("xmtc.data.sparse:LIBSVM"),
        "fasttext": Entry("xmtc.data.fasttext:FASTTEXT"),
        "text": Entry("xmtc.data.lines:TEXT"),
    },
    required=("name", "read", "recognises"),
)


def named_format(name: str, path: str | Path) -> Format:
    """Return the format with that name; `path` is for the error message."""
    if name not in FORMATS:
        near = nearest(name, FORMATS)
        raise DataError(f"{path}: no format '{shown(name)}'.{near} Available: {', '.join(FORMATS)}.")
    return FORMATS[name]


def detected(path: str | Path) -> str:
    """Detect the format of a file by its name and its first lines; the fallback is plain text without labels."""
    head = FileHead(path)
    plugins = [each for name, each in FORMATS.loadable() if name in FORMATS.plugins]
    found = next((each for each in plugins if _plugin_recognises(each, head)), None)
    if found is None:
        _refuse_other_kinds(head)
        found = next(each for each in map(FORMATS.__getitem__, FORMATS.builtin) if each.recognises(head))
    if found.lines and not head.start.strip():
        raise DataError(f"{path}: empty. Write one document per line.")
    return found.name


def _plugin_recognises(plugin: Format, head: FileHead) -> bool:
    try:
        return bool(plugin.recognises(head))
    except Exception:  # a bug in the plug-in, or an unreadable file, which is reported later
        return False


def _refuse_other_kinds(head: FileHead) -> None:
    """Raise `DataError` for other file types that would otherwise be read as plain text."""
    if head.is_folder:
        return
    path, start, name = head.path, head.raw, head.name
    if head.is_pipe and is_compressed(start):
        raise DataError(f"{path}: compressed input. Pass the file by name, or decompress it: xz -dc FILE | xmtc …")
    remedy = 'Write CSV, or JSONL with one object per line: {"text": "…", "labels": ["…"]}.'
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}:1: UTF-16, not UTF-8. Convert the file to UTF-8.")
    packed = start.startswith((b"PK\x03\x04", b"%PDF", b"\x89PNG", b"\x7fELF")) and not name.endswith(".npz")
    if packed or name.endswith((".xlsx", ".pdf", ".docx", ".xls", ".ods")):
        raise DataError(f"{path}: is not a text file. {remedy}")
    if name.endswith((".ttl", ".rdf", ".nt", ".jsonld", ".skos", ".owl")):
        raise DataError(
            f"{path}: is a vocabulary, not documents. Pass it with --labels, or convert it with --vocabulary."
        )
    if start.lstrip().startswith(b"[") and name.endswith(".json"):
        raise DataError(f"{path}: is a single JSON array. {remedy}")


def format_to_write(path: Path, dataset: Dataset, name: str | None) -> Format:
    """Return the format given by `name` or by the file ending; check that it can store these documents."""
    if name is None:
        plain = plain_name(path)
        by_name = [each.name for _, each in FORMATS.loadable() if plain.endswith(each.endings or ("\0",))]
        if not by_name:
            known = ", ".join(sorted(each.name for _, each in FORMATS.loadable() if each.write))
            raise DataError(f"{path}: the extension does not determine a format. Pass --to FORMAT: {known}.")
        name = by_name[0]
    chosen = named_format(name, path)
    if chosen.write is None:
        raise DataError(f"{path}: the format '{name}' cannot store labels and is read-only. Choose another format.")
    has = "text" if dataset.has_text else "features"
    if chosen.holds != has:
        fitting = ", ".join(each.name for _, each in FORMATS.loadable() if each.holds == has and each.write)
        raise DataError(f"{path}: these documents have {has}, but {name} stores {chosen.holds}. Choose: {fitting}.")
    reserved = {"id", "labels", *(("rejected", "complete") if chosen.decisions else ())} & set(dataset.fields)
    if reserved and chosen.fields:
        raise DataError(f"{path}: a text field has the reserved name '{reserved.pop()}'. Rename it.")
    return chosen


def write(dataset: Dataset, path: str | Path, *, file_format: str | None = None, lossy: bool = False) -> int:
    """Write documents atomically, in the format given by `file_format` or by the file ending.

    Characters that the format cannot store are an error, or replaced with `lossy`; return the number of replacements.
    """
    path = Path(path)
    if not len(dataset):
        raise DataError(f"{path}: there are no documents to write. Pass at least one.")
    if dataset.label_index is not None and dataset.label_index.ids([""])[0] >= 0:
        raise DataError(f"{path}: a label has an empty key. Give each label a key.")
    chosen = format_to_write(path, dataset, file_format)
    assert chosen.write is not None
    if dataset.partial is not None and not chosen.decisions and not lossy:
        raise DataError(
            f"{path}: some documents have unknown labels, which {chosen.name} cannot store. "
            "Choose jsonl, or pass --lossy to write the accepted labels only."
        )
    return chosen.write(dataset, path, lossy)
