"""The page at `/`: one file, and a policy under which a browser runs nothing that is not in it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("page.html")


@cache
def page() -> tuple[bytes, bytes]:
    """The page, and the header lines that go with it. The style and the script are allowed by their hashes."""
    text = FILE.read_text()
    style, script = (_hash(re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)[0]) for tag in ("style", "script"))
    policy = (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    lines = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return text.encode(), "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
