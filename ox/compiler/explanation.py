"""What `explain()` of a compiled function returns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ox.graph.ir import Graph


class Explanation:
    """Lines for people; printed, it is a page of text."""

    def __init__(
        self, name: str, plans: Mapping[Any, Sequence[Any]], history: Sequence[str], eager: Mapping[str, int]
    ) -> None:
        self.name = name
        self.graphs: list[tuple[str, Graph]] = []
        self.lines = [f"{name}: recorded {len(history)} times"]
        number = 0
        for key, held in plans.items():
            for plan in held:
                if not hasattr(plan, "explain"):
                    continue
                number += 1
                self.lines.append(f"recording {number}: {', '.join(_tensors(key[0])) or 'no tensors'}")
                self.lines += [f"    {line}" for line in plan.explain()]
                self.graphs.append((f"recording {number}", plan.layout.task.graph))
                if plan.layout.backward is not None:
                    self.graphs.append((f"recording {number}, backward", plan.layout.backward.graph))
        for reason, count in eager.items():
            self.lines.append(f"eager, {count} {'call' if count == 1 else 'calls'}: {reason}")

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__

    def save_dot(self, path: str | os.PathLike[str]) -> None:
        """Write the graphs as text for Graphviz (``dot -Tsvg file.dot``)."""
        lines = ["digraph ox {", "  rankdir=TB; node [shape=box, fontname=monospace];"]
        for number, (title, graph) in enumerate(self.graphs):
            lines.append(f"  subgraph cluster_{number} {{ label={_quoted(title)};")
            names = {value: f"v{number}_{i}" for i, value in enumerate(graph.inputs)}
            for value, name in names.items():
                lines.append(f"    {name} [label={_quoted(repr(value))}, shape=ellipse];")
            for i, node in enumerate(graph.nodes):
                own = f"n{number}_{i}"
                lines.append(f"    {own} [label={_quoted(node.key)}, tooltip={_quoted(node.place)}];")
                lines += [f"    {names[v]} -> {own};" for v in node.inputs if v in names]
                names.update(dict.fromkeys(node.outputs, own))
            lines.append("  }")
        Path(path).write_text("\n".join([*lines, "}", ""]), encoding="utf-8")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _tensors(key: Any) -> list[str]:
    """The kinds of the tensors in a signature."""
    if isinstance(key, tuple) and len(key) == 4 and isinstance(key[0], tuple) and hasattr(key[1], "itemsize"):
        return [f"{key[1]} {list(key[0])}"]
    return [text for part in key for text in _tensors(part)] if isinstance(key, tuple) else []
