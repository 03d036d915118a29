"""Public data sets of the field: what they are, where they lie, and which of their files to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from xmtc.core.errors import ConfigError, nearest, shown

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")


@dataclass(frozen=True)
class RemoteFile:
    """One file at its source. Size and sum are as somebody has published them, None where nobody has."""

    url: str
    size: int | None = None
    sha256: str | None = None
    saved_as: str = ""
    """Its name here, where the address does not end in one."""
    by_hand: str = ""
    """What to click: `url` is then a page for a browser, and no plain request gets the file."""

    @property
    def name(self) -> str:
        return self.saved_as or PurePosixPath(unquote(urlsplit(self.url).path)).name

    @property
    def is_archive(self) -> bool:
        return self.name.endswith(ARCHIVES)


@dataclass(frozen=True)
class Lines:
    """Some lines of a file: the `first` so many, or the `last`."""

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Tabbed:
    """JSONL from lines 'labels<TAB>text' or 'id<TAB>labels<TAB>text', with blanks between labels."""


@dataclass(frozen=True)
class Renamed:
    """JSONL from JSONL whose fields have other names: ours → theirs; several are joined by line ends."""

    fields: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Matched:
    """JSONL from a text a line and the rows of a matrix of labels, a file beside the texts."""

    labels: str


@dataclass(frozen=True)
class Numbered:
    """A label vocabulary from a name a line: line n, from 0, names column n of a matrix of labels, a file beside it."""

    labels: str


Making = Lines | Tabbed | Renamed | Matched | Numbered


@dataclass(frozen=True)
class Part:
    """One file to read in the end."""

    use: str
    """train, valid, test or labels."""
    source: str
    """The file among those fetched and unpacked, by its name; '*' stands for any characters."""
    file_format: str
    making: Making | None = None
    """How it is made from `source`; None: it is read as it lies there."""
    name: str = ""
    """What is made is called this."""


@dataclass(frozen=True)
class DataSet:
    """One entry of the catalogue."""

    name: str
    what: str
    train: int
    test: int
    """Documents; 0: no test file."""
    labels: int
    home: str
    """A page that tells more."""
    files: tuple[RemoteFile, ...]
    parts: tuple[Part, ...]
    content: str = "text"
    """text or features."""
    licence: str = ""
    """'' where the source does not say."""
    propensity: tuple[str, ...] = ()
    """What `evaluate` is told for figures that compare with published ones."""

    @property
    def by_hand(self) -> bool:
        return any(file.by_hand for file in self.files)


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multilabel"
_PECOS = "https://archive.org/download/pecos-dataset/xmc-base"
_DRIVE = "https://drive.google.com/open?id="
_REPOSITORY = "http://manikvarma.org/downloads/XC/XMLRepository.html"
_AMAZON = ("--propensity-a", "0.6", "--propensity-b", "2.6")
_WIKIPEDIA = ("--propensity-a", "0.5", "--propensity-b", "0.4")


def _pecos(name: str, what: str, train: int, test: int, labels: int, propensity: tuple[str, ...] = ()) -> DataSet:
    """Texts, label matrices and label names in one archive."""
    return DataSet(
        name=name,
        what=what,
        train=train,
        test=test,
        labels=labels,
        home="https://github.com/amzn/pecos/tree/mainline/examples/xr-transformer-neurips21",
        files=(RemoteFile(f"{_PECOS}/{name}.tar.gz"),),
        parts=(
            Part("train", "X.trn.txt", "jsonl", Matched("Y.trn.npz"), "train.jsonl"),
            Part("test", "X.tst.txt", "jsonl", Matched("Y.tst.npz"), "test.jsonl"),
            Part("labels", "output-items.txt", "jsonl", Numbered("Y.trn.npz"), "labels.jsonl"),
        ),
        propensity=propensity,
    )


def _libsvm(
    name: str, what: str, counts: tuple[int, int, int], train: str, test: str, making: Tabbed | None = None
) -> DataSet:
    """Two compressed files, of features, or of texts after their labels."""
    made = ("train.jsonl", "test.jsonl") if making else ("", "")
    names = (PurePosixPath(train).name, PurePosixPath(test).name)
    file_format = "jsonl" if making else "libsvm"
    parts = tuple(
        Part(use, source, file_format, making, named)
        for use, source, named in zip(("train", "test"), names, made, strict=True)
        if source
    )
    return DataSet(
        name=name,
        what=what,
        train=counts[0],
        test=counts[1],
        labels=counts[2],
        home=f"{_LIBSVM}.html",
        files=tuple(RemoteFile(f"{_LIBSVM}/{file}") for file in (train, test) if file),
        parts=parts,
        content="text" if making else "features",
    )


def _attentionxml(
    name: str, page: str, what: str, counts: tuple[int, int, int], texts: str, propensity: tuple[str, ...] = ()
) -> DataSet:
    """Texts and labels in two files, line by line, in an archive on Google Drive."""
    return DataSet(
        name=f"{name}-attentionxml",
        what=what,
        train=counts[0],
        test=counts[1],
        labels=counts[2],
        home="https://github.com/yourh/AttentionXML",
        files=(RemoteFile(f"{_DRIVE}{page}", saved_as=f"{name}-attentionxml.tar.gz", by_hand="Download"),),
        parts=(
            Part("train", f"train_{texts}.txt", "attentionxml"),
            Part("test", f"test_{texts}.txt", "attentionxml"),
        ),
        licence="free for non-commercial use",
        propensity=propensity,
    )


def _repository(
    name: str, row: str, what: str, counts: tuple[int, int, int], content: str, propensity: tuple[str, ...] = ()
) -> DataSet:
    """An archive behind a link of the Extreme Classification Repository, where files of one kind have several names."""
    if content == "features":
        link, file_format, train, test = "BoW Features", "xmlrepo", "*train.txt", "*test.txt"
    else:
        link, file_format, train, test = "Raw text", "lf", "trn*.json.gz", "tst*.json.gz"
    return DataSet(
        name=name,
        what=what,
        train=counts[0],
        test=counts[1],
        labels=counts[2],
        home=_REPOSITORY,
        files=(RemoteFile(_REPOSITORY, saved_as=f"{name}.zip", by_hand=f"'{link}' of {row}"),),
        parts=(Part("train", train, file_format), Part("test", test, file_format)),
        content=content,
        propensity=propensity,
    )


_ENTRIES = (
    DataSet(
        name="cooking",
        what="questions about cooking and their tags, of fastText's tutorial",
        train=12_404,
        test=3_000,
        labels=735,
        home="https://fasttext.cc/docs/en/supervised-tutorial.html",
        files=(RemoteFile("https://dl.fbaipublicfiles.com/fasttext/data/cooking.stackexchange.tar.gz"),),
        parts=(
            Part("train", "cooking.stackexchange.txt", "fasttext", Lines(first=12_404), "train.txt"),
            Part("test", "cooking.stackexchange.txt", "fasttext", Lines(last=3_000), "test.txt"),
        ),
        licence="CC BY-SA 3.0",
    ),
    DataSet(
        name="eurlex57k",
        what="EU laws and their EuroVoc concepts",
        train=45_000,
        test=6_000,
        labels=4_271,
        home="http://nlp.cs.aueb.gr/software_and_datasets/EURLEX57K/",
        files=(
            RemoteFile(
                "https://archive.org/download/EURLEX57K/dataset.zip",
                size=50_289_403,
                sha256="dc6830ce8ea49aea049989c4a8253b12d0fb3665fc336d830cb07b9bd28c0f92",
            ),
            RemoteFile("https://archive.org/download/EURLEX57K/eurovoc_concepts.jsonl"),
        ),
        parts=(
            *(
                Part(
                    use,
                    f"{stem}.jsonl",
                    "jsonl",
                    Renamed(
                        {
                            "id": ("celex_id",),
                            "text": ("header", "recitals", "main_body"),
                            "labels": ("eurovoc_concepts",),
                        }
                    ),
                    f"{stem}.jsonl",
                )
                for use, stem in (("train", "train"), ("valid", "dev"), ("test", "test"))
            ),
            Part(
                "labels",
                "eurovoc_concepts.jsonl",
                "jsonl",
                Renamed({"id": ("id",), "name": ("title",)}),
                "labels.jsonl",
            ),
        ),
        licence="CC BY-SA 4.0",
    ),
    _pecos("eurlex-4k", "EU laws and their EuroVoc concepts, words cut to stems", 15_449, 3_865, 3_956),
    _pecos("wiki10-31k", "Wikipedia articles and their readers' tags", 14_146, 6_616, 30_938),
    _pecos("amazoncat-13k", "Amazon products and their categories", 1_186_239, 306_782, 13_330),
    _pecos("amazon-670k", "Amazon products and those bought with them", 490_449, 153_025, 670_091, _AMAZON),
    _pecos("wiki-500k", "Wikipedia articles and their categories", 1_779_881, 769_421, 501_070, _WIKIPEDIA),
    _pecos("amazon-3m", "Amazon products and those bought with them", 1_717_899, 742_507, 2_812_281, _AMAZON),
    _libsvm(
        "rcv1",
        "Reuters news and their topics, words cut to stems",
        (23_149, 781_265, 101),
        "rcv1_topics_train.txt.bz2",
        "rcv1_topics_test.txt.bz2",
        Tabbed(),
    ),
    _libsvm(
        "rcv1-features",
        "Reuters news and their topics",
        (23_149, 781_265, 101),
        "rcv1_topics_train.svm.bz2",
        "rcv1_topics_combined_test.svm.bz2",
    ),
    _libsvm(
        "eurlex-4k-libsvm",
        "eurlex-4k as LibMultiLabel reads it",
        (15_449, 3_865, 3_956),
        "eurlex_raw_texts_train.txt.bz2",
        "eurlex_raw_texts_test.txt.bz2",
        Tabbed(),
    ),
    _libsvm(
        "wiki10-31k-libsvm",
        "wiki10-31k as LibMultiLabel reads it",
        (14_146, 6_616, 30_938),
        "wiki10_31k_raw_texts_train.txt.bz2",
        "wiki10_31k_raw_texts_test.txt.bz2",
        Tabbed(),
    ),
    _libsvm(
        "amazoncat-13k-libsvm",
        "amazoncat-13k as LibMultiLabel reads it",
        (1_186_239, 306_782, 13_330),
        "AmazonCat-13K_raw_texts_train.txt.bz2",
        "AmazonCat-13K_raw_texts_test.txt.bz2",
        Tabbed(),
    ),
    _libsvm(
        "mediamill",
        "frames of news broadcasts and what they show",
        (30_993, 12_914, 101),
        "mediamill/train-exp1.svm.bz2",
        "mediamill/test-exp1.svm.bz2",
    ),
    _libsvm(
        "siam2007",
        "reports on flight safety and what went wrong",
        (21_519, 7_077, 22),
        "tmc2007_train.svm.bz2",
        "tmc2007_test.svm.bz2",
    ),
    _libsvm("bibtex", "bookmarked papers and their tags; not split", (7_395, 0, 159), "bibtex.bz2", ""),
    _libsvm("delicious", "bookmarked pages and their tags; not split", (16_105, 0, 983), "delicious.bz2", ""),
    _attentionxml(
        "eurlex-4k",
        "1iPGbr5-z2LogtMFG1rwwekV_aTubvAb2",
        "eurlex-4k as AttentionXML reads it",
        (15_449, 3_865, 3_956),
        "texts",
    ),
    _attentionxml(
        "wiki10-31k",
        "1Tv4MHQzDWTUC9hRFihRhG8_jt1h0VhnR",
        "wiki10-31k as AttentionXML reads it",
        (14_146, 6_616, 30_938),
        "raw_texts",
    ),
    _attentionxml(
        "amazoncat-13k",
        "1VwHAbri6y6oh8lkpZ6sSY_b1FRNnCLFL",
        "amazoncat-13k as AttentionXML reads it",
        (1_186_239, 306_782, 13_330),
        "raw_texts",
    ),
    _attentionxml(
        "amazon-670k",
        "1Xd4BPFy1RPmE7MEXMu77E2_xWOhR1pHW",
        "amazon-670k as AttentionXML reads it",
        (490_449, 153_025, 670_091),
        "raw_texts",
        _AMAZON,
    ),
    _attentionxml(
        "wiki-500k",
        "1bGEcCagh8zaDV0ZNGsgF0QtwjcAm0Afk",
        "wiki-500k as AttentionXML reads it",
        (1_779_881, 769_421, 501_070),
        "raw_texts",
        _WIKIPEDIA,
    ),
    _attentionxml(
        "amazon-3m",
        "187vt5vAkGI2mS2WOMZ2Qv48YKSjNbQv4",
        "amazon-3m as AttentionXML reads it",
        (1_717_899, 742_507, 2_812_281),
        "raw_texts",
        _AMAZON,
    ),
    _repository("eurlex-4k-xmlrepo", "EURLex-4K", "EU laws, another split", (15_539, 3_809, 3_993), "features"),
    _repository("wiki10-31k-xmlrepo", "Wiki10-31K", "Wikipedia articles and tags", (14_146, 6_616, 30_938), "features"),
    _repository(
        "amazoncat-13k-xmlrepo",
        "AmazonCat-13K",
        "Amazon products and their categories",
        (1_186_239, 306_782, 13_330),
        "features",
    ),
    _repository(
        "delicious-200k", "Delicious-200K", "bookmarked pages and their tags", (196_606, 100_095, 205_443), "features"
    ),
    _repository(
        "wikilshtc-325k",
        "WikiLSHTC-325K",
        "Wikipedia articles and their categories",
        (1_778_351, 587_084, 325_056),
        "features",
        _WIKIPEDIA,
    ),
    _repository(
        "amazon-670k-xmlrepo",
        "Amazon-670K",
        "Amazon products and those bought with them",
        (490_449, 153_025, 670_091),
        "features",
        _AMAZON,
    ),
    _repository(
        "lf-amazontitles-131k",
        "LF-AmazonTitles-131K",
        "titles of Amazon products and those viewed with them",
        (294_805, 134_835, 131_073),
        "text",
        _AMAZON,
    ),
    _repository(
        "lf-wikiseealso-320k",
        "LF-WikiSeeAlso-320K",
        "Wikipedia articles and those to see also",
        (693_082, 177_515, 312_330),
        "text",
    ),
    _repository(
        "lf-amazontitles-1.3m",
        "LF-AmazonTitles-1.3M",
        "titles of Amazon products and those viewed with them",
        (2_248_619, 970_237, 1_305_265),
        "text",
        _AMAZON,
    ),
)

CATALOGUE: dict[str, DataSet] = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> DataSet:
    """An entry by its name, whatever the case."""
    if name.lower() not in CATALOGUE:
        raise ConfigError(
            f"no data set '{shown(name)}' in the catalogue.{nearest(name.lower(), CATALOGUE)} "
            "List them with: xmtc data get"
        )
    return CATALOGUE[name.lower()]
