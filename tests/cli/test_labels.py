"""How the names of classes are shown in one line."""

from __future__ import annotations

from rows import rows

from ox_cli.export import label_range


@rows(
    ("labels", "shown"),
    [
        ("0123456789", "0-9"),
        ("135", "1, 3, 5"),
        (("cat", "dog"), "cat, dog"),
        ("abcdefg", "a, b, c, d, e, ... (7)"),
        ("\n !", r"'\n', ' ', !"),  # a class may be a character
        (("", "\x1b[31m", "ü"), r"'', '\x1b[31m', ü"),
    ],
)
def test_in_one_line(labels: tuple[str, ...], shown: str) -> None:
    assert label_range(tuple(labels)) == shown
