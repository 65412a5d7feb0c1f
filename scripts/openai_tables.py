"""Generate the tables of docs/openai.md: the parameters of requests for texts.

    python scripts/openai_tables.py             write them
    python scripts/openai_tables.py --check     exit with 1 if the page is not current

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ox.serve.protocol.text.parameter import DIALECTS, Parameter
from ox.serve.protocol.text.parameters import PARAMETERS

PAGE = Path(__file__).parents[1] / "docs" / "openai.md"
SHORT = {
    "completions": "completions", "chat": "chat", "responses": "responses", "messages": "messages", "ollama": "Ollama",
    "generate": "generate",
}  # fmt: skip
KINDS = {
    "string": "a string", "object": "an object", "array": "a list", "boolean": "true, false", "integer": "whole",
    "number": "number",
}  # fmt: skip
BILLION = 10**9  # limits above it only keep numbers in range


def parameters() -> str:
    """A row for each parameter: its name, its values, where it is, and what it does."""
    rows = ["| parameter | values | in | |", "|---|---|---|---|"]
    rows += [f"| `{each.name}` | {values(each.schema)} | {where(each)} | {each.about} |" for each in PARAMETERS]
    return "\n".join(rows)


def where(parameter: Parameter) -> str:
    """The dialects that have a parameter, with the names that differ."""
    if set(parameter.names) >= set(DIALECTS) - {"ollama"} and set(parameter.names.values()) == {parameter.name}:
        return "all but Ollama" if "ollama" not in parameter.names else "all"
    return ", ".join(
        SHORT[dialect] + (f" (`{name}`)" if name != parameter.name else "") for dialect, name in parameter.names.items()
    )


def values(schema: Mapping[str, Any]) -> str:
    """The values that a schema allows, in words."""
    if "enum" in schema:
        return ", ".join(f"`{text(value)}`" for value in schema["enum"] if value is not None) or "none"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(values(each) for each in schema["anyOf"]))
    kind = schema["type"]
    if isinstance(kind, list):
        return " or ".join(KINDS[each] for each in kind)
    if kind == "array" and "items" in schema:
        item = schema["items"].get("type", "any")
        most = f", at most {schema['maxItems']:,}" if "maxItems" in schema else ""
        many = {"string": "strings", "integer": "token ids", "object": "objects",
                "any": "strings or of lists of token ids"}  # fmt: skip
        return f"a list of {many[item]}{most}"
    limits = ""
    if "minimum" in schema or "exclusiveMinimum" in schema:
        low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum", 2 * BILLION)
        above = "above" if "exclusiveMinimum" in schema else "from"
        bounds = [f"{above} {low}" if abs(low) < BILLION else "", f"to {high}" if high < BILLION else ""]
        limits = " ".join(filter(None, bounds))
    return f"{KINDS[kind]} {limits}".strip()


def text(value: Any) -> str:
    """A value as JSON has it."""
    return str(value).lower() if isinstance(value, bool) else str(value).replace("'", '"') if value != "" else '""'


TABLES: dict[str, Callable[[], str]] = {"parameters": parameters}


def page(old: str) -> str:
    """The page with its tables written again.

    Raises:
        KeyError: it has a table that is not known.
    """

    def table(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n\n{TABLES[found[1]]()}\n\n<!-- end of table -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end of table -->", table, old, flags=re.S)


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" in arguments:
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
