"""The table: what it names exists, functions ask it, and docs/amp.md shows it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.amp.autocasting import Active
from ox.amp.policy import FUNCTIONS, KEEP, OPERATORS, RULES, WIDEST
from ox.core.operator import OPS
from ox.errors import ArgumentError, DTypeError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "amp.md"


def table() -> str:
    """The rows that docs/amp.md must hold; `python tests/amp/test_policy.py` writes them there."""
    lines = ["| rule | operators | functions |", "|---|---|---|"]
    for rule in RULES:
        operators, functions = (
            ", ".join(sorted(name for name, own in each.items() if own == rule)) for each in (OPERATORS, FUNCTIONS)
        )
        lines.append(f"| `{rule}` | {operators or ('all others' if rule == WIDEST else '')} | {functions} |")
    return "\n".join(lines)


def parts(text: str) -> list[str]:
    return re.split(r"(?<=<!-- table: begins -->\n)|(?=\n<!-- table: ends -->)", text)


def test_the_page_shows_the_table() -> None:
    assert parts(PAGE.read_text())[1] == table()


def test_every_operator_of_the_table_is_one() -> None:
    assert not set(OPERATORS) - set(OPS)
    assert set(OPERATORS.values()) | set(FUNCTIONS.values()) <= set(RULES)


def functions() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for package in (ox.functions, ox.nn.functional, ox.linalg):
        for info in pkgutil.iter_modules(package.__path__):
            if info.name == "torch_level":  # torch's own forms of losses, which call those of the others
                continue
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            found |= {name: value for name, value in vars(module).items() if callable(value)}
    return found


@rows("name", FUNCTIONS)
def test_every_function_of_the_table_asks_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Enough(Exception):
        pass

    def function(self: Any, name: str, *rest: Any) -> Any:
        asked.append(name)
        raise Enough

    monkeypatch.setattr(Active, "function", function)
    with ox.autocast("cpu"), pytest.raises(Enough):
        functions()[name](ox.ones(2), ox.ones(2))
    assert asked == [name]


SPD = ox.tensor([[2.0, 0.5], [0.5, 1.0]])
MIXED: dict[str, tuple[Any, Any]] = {
    "einsum": (lambda h, x: ox.einsum("bi,bj->ij", h, x), ox.bfloat16),
    "einsum of three": (lambda h, x: ox.einsum("...i,...i,...i->...", x, h, x), ox.bfloat16),
    "einsum of a list": (lambda h, x: ox.einsum("ij,kj", [x, h]), ox.bfloat16),
    "einsum of numbers": (lambda h, x: ox.einsum(h, [0, 1], x, [0, 2]), ox.bfloat16),
    "index_copy": (lambda h, x: h.index_copy(0, ox.tensor([1, 0]), x), ox.float32),
    "index_put": (lambda h, x: ox.index_put(h, (ox.tensor([1, 0]),), x), ox.float32),
    "quantile": (lambda h, x: ox.quantile(h, x[0].sigmoid(), 1), ox.float32),
    "nanquantile": (lambda h, x: ox.nanquantile(h, 0.5), ox.float32),
    "pinv": (lambda h, x: ox.linalg.pinv(h), ox.float32),
    "matrix_rank": (lambda h, x: ox.linalg.matrix_rank(h), ox.int64),
    "lstsq": (lambda h, x: ox.linalg.lstsq(x, h).solution, ox.float32),
    "lstsq of a low matrix": (lambda h, x: ox.linalg.lstsq(h, x).solution, ox.float32),
    "inv_ex": (lambda h, x: ox.linalg.inv_ex(SPD.to(h.dtype)).inverse, ox.float32),
    "cholesky_ex": (lambda h, x: ox.linalg.cholesky_ex(SPD.to(h.dtype)).L, ox.float32),
}


@rows("dtype", [ox.bfloat16, ox.float16], ids=str)
@rows("name", MIXED)
def test_functions_that_look_at_types_themselves_take_mixed_ones(name: str, dtype: Any) -> None:
    function, expected = MIXED[name]
    x = ox.tensor([[1.0, 2.0], [-0.5, 3.0]])
    with ox.autocast("cpu", dtype):
        y = function((x + 1).to(dtype), x)
    assert y.dtype == (dtype if expected == ox.bfloat16 else expected)
    np.testing.assert_allclose(y.array.astype(np.float32), function(x + 1, x).array, rtol=0.02, atol=0.02)


def test_outside_of_a_region_they_say_what_they_take() -> None:
    x = ox.tensor([[1.0, 2.0], [-0.5, 3.0]])
    for function, _ in MIXED.values():
        for dtype in (ox.bfloat16, ox.float16):
            with pytest.raises((DTypeError, ArgumentError)):
                function((x + 1).to(dtype), x)
    with ox.autocast("cpu"), pytest.raises(DTypeError, match="Einsum needs one type"):
        ox.einsum("ij,jk", x, x.double())


def test_the_rank_is_that_of_float32() -> None:
    x = ox.tensor([[1.0, 0.0], [0.0, 1e-3]])  # below the step of bfloat16
    with ox.autocast("cpu"):
        assert ox.linalg.matrix_rank(x.bfloat16()).item() == 2
        assert ox.linalg.pinv(x.bfloat16())[1, 1].item() == pytest.approx(1e3, rel=0.01)


def test_devices_with_a_number_types_by_name_and_policies_that_are_none() -> None:
    x = ox.ones(2, 2)
    for dtype in ("bfloat16", ox.bfloat16.type, ox.bfloat16):
        with ox.autocast("cpu:0", dtype) as region:
            assert region.fast_dtype is ox.bfloat16 and (x @ x).dtype == ox.bfloat16
            assert ox.is_autocast_enabled("cpu:1") and ox.get_autocast_dtype("cpu:0") is ox.bfloat16
    assert ox.amp.is_autocast_available("cuda:1") and not ox.amp.is_autocast_available("cuda:")
    fit = ox.amp.custom_fwd(lambda ctx, x: x.dtype, device_type="cpu:0", cast_inputs=ox.float16)
    with ox.autocast("cpu"):
        assert fit(SimpleNamespace(), x) == ox.float16
    for bad in ("cuda:x", "cpu0", "CPU", "cpu:", "cpu:0:0", None, 0):
        with pytest.raises(ArgumentError, match="autocast has no device"):
            ox.autocast(bad)
    for bad in ("float32", "low", np.int8, np.float64, 3):
        with pytest.raises(DTypeError, match="autocast does not lower to"):
            ox.autocast("cpu", bad)
    for bad in (["Softmax"], "Softmax", {"Softmax"}, []):
        with pytest.raises(ArgumentError, match="policy is a dict"):
            ox.autocast("cpu", policy=bad)


def test_what_is_kept_goes_through() -> None:
    x = ox.ones(2).bfloat16()
    kept = [name for name, rule in OPERATORS.items() if rule == KEEP]
    assert "Identity" in kept
    with ox.autocast("cpu"):
        assert OPS["Identity"](x).dtype == ox.bfloat16
        assert [t.dtype for t in OPS["SequenceConstruct"](x, x)] == [ox.bfloat16] * 2


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text())
    PAGE.write_text(before + table() + after)
