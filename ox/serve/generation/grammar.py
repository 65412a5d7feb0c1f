"""Grammars in the form of the package llguidance, made of parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """Text that a model writes as a special token, where its tokenizer has one, else as characters."""

    text: str


@dataclass(frozen=True)
class Until:
    """Any text up to and with a mark."""

    mark: str


@dataclass(frozen=True)
class Part:
    """What another constraint allows; `Constraint.parts` has it by this name."""

    name: str


LarkPart = str | Mark | Until | Part
# Where the text is certain, its tokens are the model's choice: it may write others than the tokenizer would.
_OPTIONS = '%llguidance {"no_forcing": true}'


def lark_source(parts: Sequence[LarkPart], prefix: str, special: Callable[[str], int | None]) -> str:
    """The source of a grammar in llguidance's dialect of Lark.

    Args:
        parts: its source, and what stands between.
        prefix: of the names of other grammars.
        special: the id of a special token by its text; None where that is not one.
    """
    source, rules = list[str](), dict[str, str]()
    for part in parts:
        if isinstance(part, str):
            source.append(part)
        elif isinstance(part, Part):
            source.append(f"@{prefix}{part.name}")
        elif isinstance(part, Mark):
            source.append(_mark(part.text, special))
        else:
            token = special(part.mark)
            name = f"until{len(rules)}"
            lazy = "[lazy]" if token is None else ""
            rules.setdefault(part.mark, f"{name}{lazy}: ANY_TEXT {_mark(part.mark, special)}")
            source.append(rules[part.mark].partition(":")[0].removesuffix("[lazy]"))
    return "\n".join([_OPTIONS, "".join(source), *rules.values(), r"ANY_TEXT: /(.|\n)*/", r"SPACES: /\s{1,8}/", ""])


def quoted(text: str) -> str:
    """Characters, as Lark writes them."""
    return json.dumps(text, ensure_ascii=False)


def _mark(text: str, special: Callable[[str], int | None]) -> str:
    token = special(text)
    return quoted(text) if token is None else f"<[{token}]>"
