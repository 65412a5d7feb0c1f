"""ox.toml beside the models: how each is run, and under which names and labels it is found.

[models.mlp]
aliases = ["classifier"]        # other names
labels = {prod = 3, next = 4}   # other words for versions
versions = 2                    # the newest two; or "all", or [1, 3]
memory_mib = 500                # the most that loading it may take
sequence = {start = "START", state = {h_in = "h_out"}}  # see ox.serve.repository.sequence_batching
generation = {cache_mib = 512}  # see ox.serve.config.generation_options; false: the tensors of the file, not texts
max_rows = 16                   # and the other fields of `ox.serve.ModelConfig`
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ox.errors import ArgumentError, LoadError
from ox.serve.repository.pbtxt import read_text
from ox.serve.repository.policy import Policy
from ox.serve.repository.sequence_batching import from_table
from ox.serve.repository.setup import Setup

WORD = re.compile(r"[A-Za-z_][\w.-]*")
MAX_MIB = 1 << 30
MODEL_FIELDS = ("aliases", "labels", "memory_mib", "sequence", "versions")

Tables = Mapping[str, Mapping[str, Any]]


def tables(path: Path) -> Tables:
    """The settings in the file, by model.

    Raises:
        LoadError: it cannot be read or is not such a file; names the line where it can.
    """
    text = read_text(path)
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise LoadError(f"{path} is not TOML", got=str(error)) from None
    models = document.pop("models", {})
    if document or not isinstance(models, dict) or not all(isinstance(table, dict) for table in models.values()):
        got = ", ".join(document) or "something else"
        raise LoadError(f"{path} is no such file", expected="tables [models.NAME]", got=got)
    return models


def apply_table(setup: Setup, table: Mapping[str, Any], path: Path, name: str) -> Setup:
    """`setup` with the file's settings of one model.

    Raises:
        LoadError: a key is unknown, or its value is out of range.
    """
    where = f"[models.{name}]"
    rest = dict(table)

    def wrong(what: str, expected: str) -> LoadError:
        return LoadError(f"{path}: {what}", where=where, expected=expected, got=repr(table.get(what.split()[0]))[:200])

    aliases, labels = rest.pop("aliases", []), rest.pop("labels", {})
    if not isinstance(aliases, list) or not all(isinstance(alias, str) and alias for alias in aliases):
        raise wrong("aliases must be names", 'aliases = ["classifier"]')
    if not isinstance(labels, dict) or not all(
        WORD.fullmatch(label) and type(number) is int and number > 0 for label, number in labels.items()
    ):
        raise wrong("labels must name versions", "labels = {prod = 3}")
    memory = rest.pop("memory_mib", setup.running.memory_mib)
    if memory is not None and (type(memory) is not int or not 0 < memory <= MAX_MIB):
        raise wrong("memory_mib is out of range", f"1 to {MAX_MIB:,}")
    policy = setup.policy
    match rest.pop("versions", None):
        case None:
            pass
        case "all":
            policy = Policy(None)
        case bool():
            raise wrong("invalid versions", '2, "all" or [1, 3]')
        case int(count) if count > 0:
            policy = Policy(count)
        case list(numbers) if numbers and all(type(number) is int and number > 0 for number in numbers):
            policy = Policy(None, frozenset(numbers))
        case _:
            raise wrong("invalid versions", '2, "all" or [1, 3]')
    sequence = setup.running.sequence
    if "sequence" in rest:
        sequence = from_table(rest.pop("sequence"), path, where)
    known = {*MODEL_FIELDS, *(entry.name for entry in fields(setup.running.options))}
    unknown = next((key for key in rest if key not in known), None)
    if unknown is not None:
        raise LoadError(f"{path}: unknown setting '{unknown}'", where=where, expected=", ".join(sorted(known)))
    try:
        options = setup.running.options.updated(rest, where)
    except ArgumentError as error:
        raise LoadError(f"{path}: {error.what}", where=where, expected=error.expected, got=error.got) from None
    if sequence is not None and "sequence" in table and options.max_rows == 0:
        sequence = replace(sequence, batched=False)
    limited = tuple(options.max_dims) if "max_dims" in table else setup.running.limited
    source = f"max_rows is {options.max_rows} ({path.name})" if "max_rows" in table else setup.running.max_rows_source
    running = replace(
        setup.running,
        options=options,
        memory_mib=memory,
        sequence=sequence,
        limited=limited,
        own=(*setup.running.own, *table),
        max_rows_source=source,
    )
    return replace(setup, running=running, policy=policy, aliases=tuple(aliases), labels=labels)
