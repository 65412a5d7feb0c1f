"""What a model may be called by those who load it."""

from __future__ import annotations

from ox.errors import ServeError

MAX_LENGTH = 200


def check_name(name: str) -> None:
    """Raises ServeError (400) for a name that is not a valid path component, or has invisible characters."""
    if (
        0 < len(name) <= MAX_LENGTH
        and name.isprintable()
        and name == name.strip()
        and "\ufffd" not in name  # what was no UTF-8
        and name not in (".", "..")
        and not set(name) & set("/\\")
    ):
        return
    expected = f"1 to {MAX_LENGTH} printable characters, neither '.' nor '..', without slashes or blanks at its ends"
    raise ServeError("this cannot be the name of a model", expected=expected, got=ascii(name[:100]))
