"""The page at `/`: one answer that holds all of it, and a policy under which a browser runs nothing else."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def page() -> tuple[bytes, bytes]:
    """The page, and the header lines that go with it. The style and the script are allowed by their hashes."""
    style = "\n" + _read("page.css")
    script = "\n" + _read("page.js") + _read("engine.js") + _read("trial.js") + _read("chat.js")
    text = _read("page.html").replace("/* page.css */", style).replace("/* page.js */", script)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; connect-src 'self'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    lines = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return text.encode(), "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode()


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
