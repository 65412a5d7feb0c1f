"""The page that says what of PyTorch is there is current, complete, and as full as it promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rows import rows

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import from_pytorch  # noqa: E402

STORED = json.loads(from_pytorch.NAMES.read_text())
SPACES: dict[str, list[str]] = STORED["spaces"]


def test_the_page_is_current() -> None:
    page = from_pytorch.page(SPACES, STORED["version"])
    assert from_pytorch.PAGE.read_text() == page, "python scripts/from_pytorch.py"
    assert from_pytorch.LEFT_OUT.read_text() == from_pytorch.left_out(SPACES), "python scripts/from_pytorch.py"


@rows("space", SPACES)
def test_no_name_is_missing_without_a_reason(space: str) -> None:
    assert not [e.name for e in from_pytorch.entries(space, SPACES[space]) if e.counted == "missing"]


@rows(
    ("space", "share"),
    [("torch.nn", 0.9), ("torch.nn.functional", 0.9), ("torch.Tensor", 0.8), ("torch", 0.75), ("torch.optim", 0.9),
     ("torch.optim.lr_scheduler", 1.0)],
)  # fmt: skip
def test_most_names_are_there(space: str, share: float) -> None:
    counted = [e.counted for e in from_pytorch.entries(space, SPACES[space])]
    assert len(counted) > 15
    assert counted.count("there") >= share * len(counted)


def test_what_is_spelled_differently_is_there() -> None:
    for name, here in from_pytorch.RULES["spelled"].items():
        assert from_pytorch.exists(here), f"{name} -> {here}"


def test_the_names_are_those_of_the_installed_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if torch.__version__.partition("+")[0] != STORED["version"]:
        pytest.skip(f"PyTorch {torch.__version__} is installed, the page is of {STORED['version']}")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert from_pytorch.read_names() == SPACES
