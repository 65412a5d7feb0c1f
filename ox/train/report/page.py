"""The HTML of a report: style and images inside the file, no scripts, no requests."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.train.recipe.datasets import full_name
from ox.train.report.findings import MAX_SAMPLES, Findings, Sample
from ox.train.report.picture import show
from ox.train.run import curves, summary
from ox.train.run.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_TABLE = 40  # classes; a larger matrix is not readable
PAIRS = 12

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --paper: #fff; --mark: #1f6feb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa5b1; --line: #30363d; --paper: #0d1117; --mark: #4493f8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem }
p.sub, figcaption, .soft { color: var(--soft); margin: .2rem 0 }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin-top: 1.2rem }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem }
.card b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums }
.plot { background: #fff; border-radius: 8px; padding: .4rem } .plot svg { width: 100%; height: auto }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .55rem; text-align: right; border-bottom: 1px solid var(--line); font-weight: normal }
th { color: var(--soft) } td.name, th.name { text-align: left }
table.confusion td { text-align: center; border: 1px solid var(--paper); min-width: 1.6rem }
.worst { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 1rem }
.worst figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .6rem; overflow: hidden }
.worst img { width: 100%; image-rendering: pixelated; border-radius: 4px }
.worst code { font-size: .75rem; overflow-wrap: anywhere }
svg.curve { width: 100% } svg.curve polyline { fill: none; stroke: var(--mark) }
pre { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; padding: .8rem; font-size: .82rem }
summary { cursor: pointer; color: var(--soft) }
"""


def page(run: Summary, part: str, found: Findings, labels: Sequence[str] | None) -> str:
    """The HTML. `part` is the name of the data set that `found` was measured on."""
    config, best = run.run.config, run.best
    title = escape(run.run.name)
    epoch = f"best epoch: {best['epoch']} of {len(run.history)}" if best else "no finished epoch"
    body = [
        f"<h1>{title}</h1>",
        f'<p class="sub">{escape(config["recipe"]["name"])} · {escape(config["run"]["made"])} · {run.state} · '
        f"{epoch} · {run.seconds:,.0f} s</p>",
        _cards(run.figures()),
        *([_plot(curves.picture(run.history, best))] if best else []),
        *[_plot(summary.plot([run], name)) for name in summary.metrics_of(run)],
        *([_sample(best["sample"])] if best and best.get("sample") else []),
        *([_confusion(found.confusion, part, labels)] if found.confusion is not None else []),
        _worst(found, part, labels),
        _command(config),
        _epochs(run.history),
        _environment(config),
        _source(run),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def format_metric(name: str, value: float) -> str:
    """Formats a metric; accuracies in percent."""
    return f"{100 * value:.2f} %" if name.endswith(("accuracy", "top3", "top5")) else f"{value:.4g}"


def _cards(figures: dict[str, float]) -> str:
    cards = (f'<div class="card">{escape(name)}<b>{format_metric(name, v)}</b></div>' for name, v in figures.items())
    return f'<div class="cards">{"".join(cards)}</div>'


def _plot(figure: Figure) -> str:
    stream = io.StringIO()
    figure.savefig(stream, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    return f'<div class="plot">{text[text.index("<svg") :]}</div>'


def _sample(text: str) -> str:
    return f"<h2>Sample of the best epoch</h2><pre>{escape(text)}</pre>"


def _name(label: int, labels: Sequence[str] | None) -> str:
    return labels[label] if labels is not None and 0 <= label < len(labels) else str(label)


def _confusion(matrix: Any, part: str, labels: Sequence[str] | None) -> str:
    head = f"<h2>Confusion matrix ({escape(full_name(part))})</h2>"
    count = len(matrix)
    if count > LARGEST_TABLE:
        off = matrix - np.diag(np.diag(matrix))
        most = np.argsort(-off, axis=None, kind="stable")[:PAIRS]
        pairs = [(*divmod(int(at), count), int(off.flat[at])) for at in most if off.flat[at]]
        cells = ([_name(i, labels), _name(j, labels), f"{n:,}"] for i, j, n in pairs)
        return head + _table(["true class", "predicted class", "samples"], cells)
    of_row = np.maximum(matrix.sum(1, keepdims=True), 1)
    share, order = matrix / of_row, range(count)
    first = "".join(f"<th>{escape(_name(j, labels))}</th>" for j in order)
    rows = (
        f'<tr><th class="name">{escape(_name(i, labels))}</th>{"".join(_cell(matrix, share, i, j) for j in order)}</tr>'
        for i in order
    )
    body = f'<tr><th class="name">true ↓ · predicted →</th>{first}</tr>{"".join(rows)}'
    return f'{head}<div class="scroll"><table class="confusion">{body}</table></div>'


def _cell(matrix: Any, share: Any, i: int, j: int) -> str:
    color = "31, 111, 235" if i == j else "207, 34, 46"
    depth = 0.6 * share[i, j] if i == j else min(0.9, 3 * share[i, j])
    return f'<td style="background: rgba({color}, {depth:.3f})">{matrix[i, j] or ""}</td>'


def _worst(found: Findings, part: str, labels: Sequence[str] | None) -> str:
    if not found.worst:
        return ""
    looked = f"the first {MAX_SAMPLES:,} samples" if found.count == MAX_SAMPLES else f"{found.count:,} samples"
    figures = "".join(_figure(sample, labels) for sample in found.worst)
    return f'<h2>Largest losses of {looked} ({escape(full_name(part))})</h2><div class="worst">{figures}</div>'


def _figure(sample: Sample, labels: Sequence[str] | None) -> str:
    lines = [f"#{sample.index} · loss {sample.loss:.3g}", _answer(sample, labels)]
    caption = "<br>".join(escape(line) for line in lines if line)
    return f"<figure>{''.join(map(show, sample.inputs))}<figcaption>{caption}</figcaption></figure>"


def _answer(sample: Sample, labels: Sequence[str] | None) -> str:
    outputs, target = sample.outputs, sample.target
    if outputs is None or target is None or target.size > 4:
        return ""
    if target.ndim == 0 and target.dtype.kind in "iu" and outputs.ndim == 1 and outputs.size > 1:
        return f"true: {_name(int(target), labels)}, predicted: {_name(int(outputs.argmax()), labels)}"
    if outputs.size <= 4:
        predicted = ", ".join(f"{v:.4g}" for v in outputs.reshape(-1))
        return f"true: {', '.join(f'{v:.4g}' for v in target.reshape(-1))}, predicted: {predicted}"
    return ""


def _command(config: dict[str, Any]) -> str:
    options = config["options"]
    words = {f"--{k.replace('_', '-')}": v for k, v in options.items() if v is not False}
    flags = " ".join(name if v is True else f"{name} {shlex.quote(str(v))}" for name, v in words.items())
    return (
        f"<h2>Command</h2><pre>{escape(config['run']['command'])}</pre>"
        f'<p class="soft">with all options: <code>{escape(flags)}</code></p>'
    )


def _epochs(history: list[dict[str, Any]]) -> str:
    names = [k for k in dict.fromkeys(k for row in history for k in row) if k != "sample"]
    names = [k for k in names if not any(isinstance(row.get(k), list) for row in history)]
    rows = ([_number(row.get(name)) for name in names] for row in history)
    return f"<details><summary>All epochs</summary>{_table([n.replace('_', ' ') for n in names], rows)}</details>"


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def _environment(config: dict[str, Any]) -> str:
    rows = (
        [f"{table}.{key}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)]
        for table, entries in config.items()
        for key, value in entries.items()
    )
    return f"<details><summary>Environment and options</summary>{_table(['', ''], rows)}</details>"


def _source(run: Summary) -> str:
    path = run.run.folder / "recipe.py"
    if not path.is_file():
        return ""
    text = escape(path.read_text(encoding="utf-8"))
    return f"<details><summary>Recipe file</summary><pre>{text}</pre></details>"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
