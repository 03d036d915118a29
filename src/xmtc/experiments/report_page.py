"""A report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from html import escape

from xmtc.core import config
from xmtc.experiments import report_figures
from xmtc.experiments.published import Source
from xmtc.experiments.records import Cell
from xmtc.experiments.report import DatasetPart, Report, SuitePart
from xmtc.experiments.tables import NOTHING, Row, Table, TableEntry

_STYLE = """
*{box-sizing:border-box}
:root{color-scheme:light;--ink:#1c2126;--faint:#59626b;--line:#dfe3e7;--paper:#ffffff;--tint:#f5f7f9;--link:#1f5c9e}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:80rem;margin:0 auto;padding:2rem 1rem 4rem}
h1{font-size:1.8rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.45rem;line-height:1.25;margin:3.5rem 0 .25rem;padding-top:1rem;border-top:2px solid var(--ink)}
h3{font-size:1.2rem;margin:2.75rem 0 .25rem;padding-top:.75rem;border-top:1px solid var(--line)}
h4{font-size:1rem;margin:2rem 0 .25rem}
h1,h2,h3,h4,p,li,summary{overflow-wrap:anywhere}
p{margin:.35rem 0;max-width:48rem}
a{color:var(--link)}
.faint{color:var(--faint)}
.small{font-size:.875rem}
nav{background:var(--tint);padding:.75rem 1rem;margin:1.5rem 0;border-radius:.3rem}
nav p{margin:0;font-weight:600}
nav ul{list-style:none;margin:.25rem 0;padding:0}
nav ul ul{padding-left:1rem}
nav ul ul ul{display:flex;flex-wrap:wrap;gap:0 1rem}
nav a{display:inline-block;padding:.2rem 0}
.box{overflow-x:auto;margin:.75rem 0 .35rem;max-width:100%;background:
linear-gradient(270deg,var(--paper) 40%,transparent) right/2.5rem 100% no-repeat local,
linear-gradient(270deg,#1c212630,transparent) right/.6rem 100% no-repeat scroll}
.box caption span{display:inline-block;position:sticky;left:0;max-width:calc(100vw - 2.5rem)}
.box:focus-visible{outline:2px solid var(--link)}
table{border-collapse:collapse;font-size:.9rem}
caption{text-align:left;color:var(--faint);padding:0 0 .35rem;font-size:.875rem}
th,td{padding:.32rem .8rem .32rem 0;border-bottom:1px solid var(--line);vertical-align:baseline;text-align:left}
thead th{font-weight:600;border-bottom:1px solid var(--ink);vertical-align:bottom}
tbody th{font-weight:normal;white-space:nowrap}
tbody th,thead th:first-child{position:sticky;left:0;background:var(--paper)}
.nowrap{white-space:nowrap}
.sd{font-size:.8em;color:var(--faint)}
strong .sd{font-weight:normal}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;padding-left:.4rem}
thead th.number{white-space:normal;min-width:4.2rem}
tbody th.long,td.long{white-space:normal;overflow-wrap:anywhere;min-width:9rem}
tr.first td,tr.first th{border-top:1px solid var(--ink)}
tr.published{color:#3d464e}
tr.heading th{font-size:.8rem;color:var(--faint);padding-top:.7rem;letter-spacing:.02em}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));
gap:.75rem 1rem;margin:.75rem 0}
.grid figure,.single{margin:0}
.grid svg,.single svg{display:block;max-width:100%;height:auto}
.single svg{max-width:min(100%,44rem)}
details{margin:.6rem 0}
details details{margin:.35rem 0 .35rem 1rem}
summary{cursor:pointer;padding:.2rem 0}
summary:focus-visible,a:focus-visible{outline:2px solid var(--link);outline-offset:2px}
pre{background:var(--tint);padding:.6rem .75rem;margin:.4rem 0;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:.85rem}
ol.sources li{margin:.5rem 0;max-width:48rem}
@media(max-width:47.9rem){tbody th{white-space:normal;min-width:7rem;max-width:9.5rem;overflow-wrap:break-word}}
@media(min-width:48rem){main{padding:2.5rem 2rem 5rem}}
@media print{nav{display:none}.box{overflow:visible}}
"""


def page(report: Report) -> str:
    """The whole page."""
    names = ", ".join(suite.title for suite in report.suites)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{_safe(names)}: results</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>Results: {_safe(names)}</h1>",
        f'<p class="faint">{_extent(report)}</p>',
        *_contents(report),
    ]
    for number, suite in enumerate(report.suites, start=1):
        parts += _suite(report, suite, f"s{number}")
    parts += [*_reading(), *_sources(report.sources)]
    return "\n".join([*parts, "</main>", "</body>", "</html>", ""])


def _extent(report: Report) -> str:
    cells = [cell for suite in report.suites for cell in suite.results.cells]
    models, datasets = ({getattr(cell.name, what) for cell in cells} for what in ("model", "dataset"))
    words = [_several(len(report.suites), "suite"), _several(len(datasets), "data set"), _several(len(models), "model")]
    return f"{', '.join(words)}, {_several(len(cells), 'cell')} (one model on one data set with one seed)."


def _several(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _contents(report: Report) -> list[str]:
    parts = ['<nav aria-label="Contents">', "<p>Contents</p>", "<ul>"]
    for number, suite in enumerate(report.suites, start=1):
        parts.append(f'<li><a href="#s{number}">Suite {_safe(suite.title)}</a>')
        if suite.study is None:
            parts.append("<ul>")
            if suite.statistics is not None:
                parts.append(f'<li><a href="#s{number}-data">Data sets</a></li>')
            parts.append(f'<li><a href="#s{number}-ranks">Models against each other</a></li>')
            for at, part in enumerate(suite.datasets, start=1):
                place = f"s{number}-d{at}"
                inner = "".join(f'<li><a href="#{place}-{key}">{words}</a></li>' for key, words in _sections(part))
                parts.append(f'<li><a href="#{place}">{_safe(part.name)}</a><ul class="small">{inner}</ul></li>')
            parts.append("</ul>")
        parts.append("</li>")
    parts.append('<li><a href="#reading">How to read this</a></li>')
    if report.sources:
        parts.append('<li><a href="#sources">Sources of others’ figures</a></li>')
    return [*parts, "</ul>", "</nav>"]


def _sections(part: DatasetPart) -> list[tuple[str, str]]:
    """What the section of a data set holds."""
    known = {
        ("accuracy", "Accuracy"): True,
        ("rare", "Frequent and rare labels"): bool(part.groups or part.tail),
        ("overlap", "What models share"): bool(part.overlap),
        ("scores", "Scores as probabilities"): part.reading is not None,
        ("curves", "Training"): bool(part.curves),
        ("costs", "Time, memory and size"): True,
        ("cells", "Each cell"): True,
    }
    return [section for section, there in known.items() if there]


# ---- a suite


def _suite(report: Report, suite: SuitePart, place: str) -> list[str]:
    parts = [f'<h2 id="{place}">Suite {_safe(suite.title)}</h2>']
    if suite.results.about:
        parts.append(f"<p>{_safe(suite.results.about)}</p>")
    if suite.study is not None:
        parts += [f'<figure class="single">{suite.study.figure}</figure>'] if suite.study.figure else []
        parts += _table(suite.study.table, report)
        for part in suite.datasets:
            parts += _folded(f"Accuracy on {part.name}", _table(part.accuracy, report))
        cells = [cell for part in suite.datasets for runs in part.runs for cell in runs.cells]
        return [*parts, *_cells(cells)]
    noisy = [part for part in suite.datasets if part.record.noise]
    if suite.statistics is not None:
        parts += [f'<h3 id="{place}-data">Data sets</h3>']
        about = [(part.name, part.record.about) for part in suite.datasets if part.record.about and part not in noisy]
        parts += [f"<p><strong>{_safe(name)}</strong>: {_safe(words)}</p>" for name, words in about]
        parts += _table(suite.statistics, report)
        parts += [_faint(f"{part.name}: {_noise(part)}.") for part in noisy]
        quantiles = [part.quantiles for part in suite.datasets if part.quantiles is not None and part not in noisy]
        parts += _folded(
            "How labels and texts are spread", [line for each in quantiles for line in _table(each, report)]
        )
    parts.append(f'<h3 id="{place}-ranks">Models against each other</h3>')
    parts += [line for table in suite.ranks for line in _table(table, report)]
    parts += [_faint(suite.no_ranks)] if suite.no_ranks else []
    for at, part in enumerate(suite.datasets, start=1):
        parts += _dataset(report, part, f"{place}-d{at}")
    return parts


def _noise(part: DatasetPart) -> str:
    noise = part.record.noise
    return (
        f"{noise.get('of', 'another')} with noise, {noise.get('kind', 'of some kind')} at rate {noise.get('rate', '?')}"
    )


def _dataset(report: Report, part: DatasetPart, place: str) -> list[str]:
    parts = [f'<h3 id="{place}">{_safe(part.name)}</h3>']
    if part.record.noise:
        parts.append(_faint(f"{_noise(part).capitalize()}."))
    headings = dict(_sections(part))

    def heading(key: str) -> str:
        return f'<h4 id="{place}-{key}">{headings[key]}</h4>'

    parts += [heading("accuracy"), *_table(part.accuracy, report), *_published(part)]
    parts += _table(part.beside, report)
    parts += _folded("All measures", _table(part.measures, report))
    if "rare" in headings:
        parts += [heading("rare"), *_pictures(report_figures.group_pictures(part))]
        if part.groups and len(part.runs) > report_figures.MOST_SERIES:
            parts.append(_faint(f"Drawn are the best {report_figures.MOST_SERIES} models; the tables have all."))
        parts += [line for table in part.groups[:1] for line in _table(table, report)]
        for table in part.groups[1:]:
            parts += _folded(table.caption, _table(table, report))
        parts += _table(part.tail, report)
    if "overlap" in headings:
        parts += [heading("overlap"), *_table(part.overlap[0], report)]
        for table in part.overlap[1:]:
            parts += _folded("The same for the first 1 to 5", _table(table, report))
    if "scores" in headings:
        parts += [
            heading("scores"),
            *_pictures(report_figures.reliability_pictures(part)),
            *_table(part.reading, report),
        ]
    if "curves" in headings:
        parts += [heading("curves"), _faint("Of the first seed. A ring marks the validation whose weights were kept.")]
        parts += _pictures(report_figures.curve_pictures(part))
    parts += [heading("costs"), *_pictures(report_figures.cost_pictures(part)), *_table(part.costs, report)]
    told = [f"machine {number}: {words}" for number, words in enumerate(part.machines, start=1)]
    parts.append(_faint(f"Measured on {'; '.join(told) if len(told) > 1 else part.machines[0]}."))
    parts.append(heading("cells"))
    parts += _cells([cell for runs in part.runs for cell in runs.cells])
    return [*parts, *([_faint(" ".join(part.missing))] if part.missing else [])]


def _published(part: DatasetPart) -> list[str]:
    """The data set that others measured on, to be held against ours."""
    if (found := part.published) is None:
        return []
    sizes = [("training documents", found.train), ("test documents", found.test), ("labels", found.labels)]
    told = [f"{count:,} {what}" for what, count in sizes if count is not None]
    words = f"Others’ figures are on {found.name}{': ' if told else ''}{', '.join(told)}."
    return [_faint(f"{words} {found.note}".rstrip())]


def _faint(words: str) -> str:
    return f'<p class="faint small">{_safe(words)}</p>'


def _pictures(pictures: Sequence[str]) -> list[str]:
    if not pictures:
        return []
    return ['<div class="grid">', *(f"<figure>{picture.strip()}</figure>" for picture in pictures), "</div>"]


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    return [f"<details><summary>{_safe(summary)}</summary>", *lines, "</details>"] if lines else []


# ---- tables


def _table(table: Table | None, report: Report) -> list[str]:
    """A table in a box of its own, in which it can be moved where the page is narrow."""
    if table is None:
        return []
    head = "".join(f'<th scope="col" class="number">{_safe(column)}</th>' for column in table.columns)
    lines = [
        f'<div class="box" role="region" tabindex="0" aria-label="{_safe(table.caption)}">',
        f"<table><caption><span>{_safe(table.caption)}</span></caption>",
        f'<thead><tr><th scope="col">{_safe(table.head)}</th>{head}</tr></thead>',
        "<tbody>",
    ]
    apart = table.rows[0].published is None if table.rows else False  # ours first, then others'
    for row in table.rows:
        if apart and row.published is not None:
            columns = len(table.columns) + 1
            lines.append(f'<tr class="heading"><th scope="colgroup" colspan="{columns}">others’ figures</th></tr>')
            apart = False
        lines.append(_row(row, report))
    lines += ["</tbody>", "</table>", "</div>"]
    return [*lines, *([_faint(table.note)] if table.note else []), *_remarks(table, report)]


def _row(row: Row, report: Report) -> str:
    look = ' class="published"' if row.published is not None else ""
    cells = "".join(f'<td class="number">{_entry(entry)}</td>' for entry in row.entries)
    return f'<tr{look}><th scope="row">{_named(row, report)}</th>{cells}</tr>'


def _named(row: Row, report: Report) -> str:
    if row.published is None:
        return _safe(row.name)
    number, figure = report.number(row.published), row.published
    other = f" / {_safe(figure.method)}" if figure.method != row.name else ""
    mark = " ?" if figure.source.doubt else ""
    mark += " *" if figure.mark or figure.note else ""
    link = f'<a href="#source-{number}" aria-label="source {number}">[{number}]</a>'
    return f'{_safe(row.name)}{other} <span class="nowrap">{link}{mark}</span>'


def _entry(entry: TableEntry) -> str:
    if entry.text == NOTHING:
        return f'<span class="faint">{NOTHING}</span>'
    value, sign, deviation = entry.text.partition(" ± ")
    told = _safe(value) + (f' <span class="sd">± {_safe(deviation)}</span>' if sign else "")
    return f"<strong>{told}</strong>" if entry.best else told


def _remarks(table: Table, report: Report) -> list[str]:
    """What there is to know of published figures in a table."""
    told = []
    for figure in (row.published for row in table.rows if row.published is not None):
        marks = {"secondary": "as quoted elsewhere", "recalled": "from memory of the publication"}
        words = [marks[figure.mark]] if figure.mark else []
        words += [figure.note.rstrip(".")] if figure.note else []
        if words:
            told.append(f"{_safe(figure.method)} [{report.number(figure)}]: {_safe('; '.join(words))}.")
    doubtful = any(row.published is not None and row.published.source.doubt for row in table.rows)
    lines = [_faint("? marks figures that are in doubt, see the source; they are never in bold.")] if doubtful else []
    if told:
        items = [f"<li>{words}</li>" for words in told]
        lines += _folded(f"* Remarks on {_several(len(told), 'figure')}", ['<ul class="small">', *items, "</ul>"])
    return lines


# ---- cells


def _cells(cells: Sequence[Cell]) -> list[str]:
    lines = [line for cell in cells for line in _cell(cell)]
    note = _faint("The command runs a cell anew: DATA is the folder of the data sets, DIR any new folder.")
    return _folded(f"How to reproduce {_several(len(cells), 'cell')}", [note, *lines])


def _cell(cell: Cell) -> list[str]:
    facts = {
        "model": cell.kind,
        "seed": cell.name.seed,
        "finished": cell.finished,
        "test documents": cell.documents,
        **{f"machine: {name}": value for name, value in config.flat(cell.machine).items()},
        **{f"found by training: {name}": value for name, value in config.flat(cell.facts).items()},
        **{f"setting: {name}": value for name, value in config.flat(cell.settings).items()},
    }
    rows = "".join(
        f'<tr><th scope="row" class="long">{_safe(name)}</th><td class="long">{_safe(_value(value))}</td></tr>'
        for name, value in facts.items()
    )
    caption = f"<caption><span>{_safe(str(cell.name))}</span></caption>"
    table = f'<div class="box"><table>{caption}<tbody>{rows}</tbody></table></div>'
    return _folded(str(cell.name), [f"<pre><code>{_safe(cell.command)}</code></pre>", table])


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


# ---- what stands at the end


def _reading() -> list[str]:
    return [
        '<h2 id="reading">How to read this</h2>',
        "<p>P@k is the share of true labels among the first k of a document; nDCG@k weighs hits by their place; PSP@k "
        "weighs labels by how rarely they are seen and annotated. All are means over the test documents, in percent. "
        "AUC and AUPR are of each label's ranking of all documents, averaged over labels of like frequency.</p>",
        "<p>In bold stands the best of our models in a column and, among the figures of others, the best of those. "
        "Models are listed by nDCG@5. ± is the standard deviation over seeds. Times are means over seeds, on "
        "the machine named below them.</p>",
        "<p>Published figures were measured by others, on the data set of that name: their text and their preparation "
        "of it may differ from ours.</p>",
    ]


def _sources(sources: Sequence[Source]) -> list[str]:
    if not sources:
        return []
    items = []
    for number, source in enumerate(sources, start=1):
        where = ", ".join(str(words) for words in (source.where, source.year) if words)
        words = [f"{source.authors}." if source.authors else "", f"{source.title}.", f"{where}." if where else ""]
        words += [f"Tables {source.tables}." if source.tables else ""]
        told = [_safe(" ".join(each for each in words if each))]
        told += [f"<strong>In doubt</strong>: {_safe(source.doubt)}"] if source.doubt else []
        kinds = {
            "collected": "Taken from a collection; the publication was not at hand.",
            "measured here": "Measured by this project with other software.",
        }
        told += [
            f'<span class="faint">{_safe(each)}</span>' for each in (kinds.get(source.kind, ""), source.note) if each
        ]
        items.append(f'<li id="source-{number}">{" ".join(told)}</li>')
    return ['<h2 id="sources">Sources of others’ figures</h2>', '<ol class="sources">', *items, "</ol>"]


def _safe(text: str) -> str:
    """Text between tags or in an attribute; control characters, which HTML has no place for, become visible."""
    shown = (char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs") else "\ufffd" for char in text)
    return escape("".join(shown))
