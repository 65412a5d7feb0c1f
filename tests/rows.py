"""Rows of a table as subtests of one item, which is collected, set up and reported once.

`rows` stands where `pytest.mark.parametrize` would. A failure names its row (`SUBFAILED[Softmax-3]`), and
`-k "[Softmax-3]"` runs that row alone. Rows with a mark, such as `slow` or `skipif`, are an item with this mark.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from ox.random import default_generator


def seed(config: pytest.Config, name: str) -> None:
    """Set all generators by the run's seed and a name: what a test draws does not follow from what ran before it."""
    of_run = config.getoption("randomly_seed", 0)
    number = (of_run if isinstance(of_run, int) else 0) + crc32(name.encode())
    default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


@dataclass(frozen=True)
class Row:
    name: str
    arguments: dict[str, Any]
    marks: tuple[Any, ...] = ()

    @contextmanager
    def setup(self, request: pytest.FixtureRequest, fixtures: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The arguments of the call: folder and patches are this row's own, random numbers follow from its name."""
        seed(request.config, f"{request.node.nodeid}[{self.name}]")
        own = {**fixtures, **self.arguments}
        if "tmp_path" in own:
            own["tmp_path"] = own["tmp_path"] / f"{crc32(self.name.encode()):08x}"
            own["tmp_path"].mkdir()
        with pytest.MonkeyPatch.context() as patch:
            if "monkeypatch" in own:
                own["monkeypatch"] = patch
            yield own

    def joined(self, other: Row) -> Row:
        name = f"{self.name}-{other.name}" if self.name else other.name
        return Row(name, {**self.arguments, **other.arguments}, (*self.marks, *other.marks))


def rows(
    names: str | Sequence[str],
    table: Iterable[Any],
    *,
    ids: Callable[[Any], Any] | Iterable[str] | None = None,
    items: int = 1,
    fast: int | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once a row of a table, as subtests; of two decorators, once a pair of their rows.

    Args:
        names: of the arguments, as `pytest.mark.parametrize` takes them.
        table: the values, or `pytest.param` of them with an id and marks.
        ids: names of the rows, or what makes one of a value.
        items: how many items share the rows, where these take more than a few seconds.
        fast: so many rows are in `make test`; the others are an item marked `slow`.
    """
    argnames = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    row_ids = ids if ids is None or callable(ids) else list(ids)
    parsed = [parse(argnames, k, values, row_ids) for k, values in enumerate(table)]
    if not parsed:
        raise ValueError(f"the table of {', '.join(argnames)} is empty: none of its rows would be tested")
    counts = Counter(row.name for row in parsed)
    parsed = [replace(r, name=f"{r.name}{k}") if counts[r.name] > 1 else r for k, r in enumerate(parsed)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        base, inner = getattr(test, "base", test), getattr(test, "table", [Row("", {})])
        every = [b.joined(a) for b in inner for a in parsed]
        if fast is not None:
            every[fast:] = [replace(row, marks=(*row.marks, pytest.mark.slow)) for row in every[fast:]]

        @functools.wraps(base)
        def item(part: list[Row], subtests: pytest.Subtests, request: pytest.FixtureRequest, **fixtures: Any) -> None:
            __tracebackhide__ = True
            words = (request.config.getoption("keyword") or "").lower().split(" or ")
            for row in [r for r in part if any(w in f"{base.__name__}[{r.name}]".lower() for w in words)] or part:
                with subtests.test(row.name), row.setup(request, fixtures) as arguments:
                    named(row.name)(base, arguments)

        own = [p for p in inspect.signature(base).parameters.values() if p.name not in every[0].arguments]
        added = [inspect.Parameter(p, inspect.Parameter.KEYWORD_ONLY) for p in ("part", "subtests", "request")]
        item.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        item.pytestmark = [mark for mark in getattr(test, "pytestmark", []) if mark.args[:1] != ("part",)]  # type: ignore[attr-defined]
        item.base, item.table = base, every  # type: ignore[attr-defined]
        return pytest.mark.parametrize("part", split(every, items))(item)

    return decorate


def named(name: str) -> Callable[[Callable[..., None], dict[str, Any]], None]:
    """Calls a test in a frame with this name, which the stacks of a row that hangs or crashes show."""

    def run(test: Callable[..., None], arguments: dict[str, Any]) -> None:
        __tracebackhide__ = True
        test(**arguments)

    run.__code__ = run.__code__.replace(co_name=f"row [{name}]")
    return run


def parse(argnames: list[str], k: int, values: Any, ids: Callable[[Any], Any] | list[str] | None) -> Row:
    """A row, with the name that pytest would give it."""
    name, marks = ids[k] if isinstance(ids, list) else None, ()
    if isinstance(values, type(pytest.param())):
        name, marks, values = values.id or name, tuple(values.marks), values.values
    elif len(argnames) == 1:
        values = (values,)
    if name is None:
        make = ids if callable(ids) else lambda value: None
        pairs = zip(argnames, values, strict=True)
        name = "-".join(str(id_of(f"{key}{k}", value) if (own := make(value)) is None else own) for key, value in pairs)
    return Row(name, dict(zip(argnames, values, strict=True)), marks)


def id_of(otherwise: str, value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | np.dtype):
        return value
    return getattr(value, "__name__", otherwise)


def split(table: list[Row], items: int) -> list[Any]:
    """The rows of each item, those with other marks apart."""
    marked: dict[str, list[Row]] = {}
    for row in table:
        marked.setdefault(repr(row.marks), []).append(row)
    parts = [same[i::items] for same in marked.values() for i in range(min(items, len(same)))]
    if len(parts) == 1:
        return [pytest.param(parts[0], id=pytest.HIDDEN_PARAM, marks=parts[0][0].marks)]
    return [pytest.param(p, id="..".join(dict.fromkeys((p[0].name, p[-1].name))), marks=p[0].marks) for p in parts]


def name_rows(items: list[pytest.Item]) -> None:
    """`-k "[Softmax]"` selects the items that have a row of this name."""
    for item in items:
        part = getattr(item, "callspec", None) and item.callspec.params.get("part")
        if isinstance(part, list):
            item.extra_keyword_matches.update(f"{item.originalname}[{row.name}]" for row in part)
