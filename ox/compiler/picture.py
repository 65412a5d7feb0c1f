"""Pictures of recorded graphs by Graphviz: operators in the order of their data, and what an engine runs together."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ox.errors import ArgumentError, WriteError
from ox.graph.ir import Node, Value

TEXT = (".dot", ".gv")
DRAWN = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class Drawing:
    """A graph to draw.

    Args:
        groups: nodes that run together, each with a line of what they run as; no line for a node by itself.
    """

    title: str
    inputs: Sequence[Value]
    groups: Sequence[tuple[str, Sequence[Node]]]


def dot_text(drawings: Sequence[Drawing]) -> str:
    """The drawings beside one another, in Graphviz's language."""
    lines = ["digraph ox {", "  rankdir=TB; node [shape=box, fontname=monospace];"]
    for number, drawing in enumerate(drawings):
        lines.append(f"  subgraph cluster_{number} {{ label={_quoted(drawing.title)};")
        lines += _body(drawing, number)
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def _body(drawing: Drawing, number: int) -> list[str]:
    names = {value: f"v{number}_{i}" for i, value in enumerate(drawing.inputs)}
    lines = [f"    {name} [label={_quoted(repr(value))}, shape=ellipse];" for value, name in names.items()]
    count = 0
    for i, (label, nodes) in enumerate(drawing.groups):
        if label:
            lines.append(f"    subgraph cluster_{number}_{i} {{ label={_quoted(label)}; style=filled; color=lightgrey;")
        for node in nodes:
            own = f"n{number}_{count}"
            count += 1
            lines.append(f"    {own} [label={_quoted(node.key)}, tooltip={_quoted(node.place)}];")
            names.update(dict.fromkeys(node.outputs, own))
        if label:
            lines.append("    }")
    nodes = [node for _, group in drawing.groups for node in group]
    for count, node in enumerate(nodes):
        lines += [f"    {names[v]} -> n{number}_{count};" for v in node.inputs if v in names]
    return lines


def draw(text: str, path: Path, suffix: str) -> None:
    """Write a picture of Graphviz's text, in the form that the suffix names; see TEXT and DRAWN.

    Raises:
        ArgumentError: there is no such form.
        WriteError: Graphviz is not installed, or failed.
    """
    if suffix in TEXT:
        path.write_text(text, encoding="utf-8")
        return
    if suffix not in DRAWN:
        raise ArgumentError("a picture has no such form", expected=", ".join((*TEXT, *DRAWN)), got=repr(suffix))
    if shutil.which("dot") is None:
        raise WriteError(
            f"Graphviz, which draws {suffix} files, is not installed",
            hint="apt install graphviz, or save(...) to a file that ends with .dot",
        )
    ran = subprocess.run(["dot", f"-T{suffix[1:]}"], input=text.encode(), capture_output=True, check=False)
    if ran.returncode:
        raise WriteError("Graphviz failed", got=ran.stderr.decode(errors="replace").strip()[:500])
    path.write_bytes(ran.stdout)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
