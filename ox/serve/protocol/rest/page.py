"""The page at /docs: the OpenAPI document as HTML, without scripts or external files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

import orjson

POLICY = b"content-security-policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'\r\n"
STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}summary{cursor:pointer;padding:.35rem 0}details{border-top:1px solid #8884}
pre{overflow:auto;max-height:24rem;padding:.75rem;background:#8881;border-radius:6px;font-size:13px}
code{font-size:13px}b{display:inline-block;width:3.2rem;font:600 12px system-ui}.post{color:#b60}.get{color:#07a}
dt{font-weight:600;margin-top:.5rem}dd{margin-left:1rem}
"""
LIST, BREAK = re.compile(r"\[\n\s+([^][{}]*)\n\s+\]"), re.compile(r",\n\s+")
Document = Mapping[str, Any]


def page(document: Document) -> bytes:
    """The document as HTML."""
    info = document["info"]
    calls = [
        _call(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1><p>{escape(info['description'])}</p>"
        f'<p>The same for programs: <a href="openapi.json">openapi.json</a></p>{"".join(calls)}</html>'
    ).encode()


def _call(path: str, method: str, operation: Document) -> str:
    parts = []
    if parameters := operation.get("parameters"):
        rows = [f"<dt><code>{escape(each['name'])}</code><dd>{escape(_about(each))}" for each in parameters]
        parts.append(f"<dl>{''.join(rows)}</dl>")
    if body := operation.get("requestBody"):
        parts.append(_media("Request", body["content"]))
    parts.append(_media("Answer", operation["responses"]["200"].get("content", {})))
    name = f'<b class="{method}">{method.upper()}</b> <code>{escape(path)}</code> {escape(operation["summary"])}'
    return f'<details id="{escape(operation["operationId"])}"><summary>{name}</summary>{"".join(parts)}</details>'


def _about(parameter: Document) -> str:
    return f"in the {parameter['in']}. {parameter.get('description', '')}".strip()


def _media(title: str, content: Document) -> str:
    media = content.get("application/json")
    if media is None or not (media["schema"] or "example" in media):
        return ""
    shown = "".join(
        f"<dt>{title}, {what}<dd><pre>{escape(_text(media[key]))}</pre>"
        for key, what in (("example", "a golden sample"), ("schema", "schema"))
        if key in media
    )
    return f"<dl>{shown}</dl>"


def _text(value: Any) -> str:
    """Indented JSON with flat lists on one line."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return LIST.sub(lambda found: f"[{BREAK.sub(', ', found[1])}]", text)
