"""The page at `/`: one answer that holds all of it, and a policy under which a browser runs nothing else."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from pathlib import Path

HERE = Path(__file__).parent


@cache
def page(root_path: str = "") -> tuple[bytes, bytes]:
    """The page, and the header lines that go with it. The style and the script are allowed by their hashes.

    Args:
        root_path: the path under which a proxy publishes the server. All addresses on the page are relative to it;
            without one, to the page's own address.
    """
    style = "\n" + _read("page.css")
    script = "\n" + _read("page.js") + _read("engine.js") + _read("trial.js") + _read("chat.js")
    base = f'<base href="{escape(root_path)}/">' if root_path else ""
    text = _read("page.html").replace("<!-- base -->", base)
    text = text.replace("/* page.css */", style).replace("/* page.js */", script)
    base_uri = "'self'" if root_path else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; connect-src 'self'; "
        f"img-src data: blob:; base-uri {base_uri}; form-action 'none'; frame-ancestors 'none'"
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
