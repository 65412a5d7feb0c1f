"""einops finds ox by itself, its functions record with the sizes of the run, and its layers are modules."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

einops = pytest.importorskip("einops", reason="einops is an extra of the tests")

import onnx  # noqa: E402
from einops import einsum, pack, parse_shape, rearrange, reduce, repeat, unpack  # noqa: E402
from einops_patterns import ARRAYS, BATCH, PLAIN, REFUSED  # noqa: E402

import ox  # noqa: E402
from ox import nn  # noqa: E402
from ox.einops import EinMix, Rearrange, Reduce  # noqa: E402
from ox.errors import OxError  # noqa: E402

NAMES = {"asnumpy": einops.asnumpy, "einsum": einsum, "pack": pack, "parse_shape": parse_shape, "rearrange": rearrange,
         "reduce": reduce, "repeat": repeat, "unpack": unpack}  # fmt: skip


def evaluate(text: str, arrays: dict[str, Any]) -> Any:
    return eval(text, {**NAMES, **arrays})


def plain(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, ox.Tensor) else value


@rows("text", BATCH + PLAIN)
def test_the_same_as_on_arrays_of_numpy(text: str) -> None:
    got = evaluate(text, {name: ox.tensor(a) for name, a in ARRAYS.items()})
    expected = evaluate(text, ARRAYS)
    if isinstance(expected, dict):
        assert got == expected
    else:
        np.testing.assert_allclose(plain(got), expected, rtol=1e-12)


@rows("text", REFUSED)
def test_einops_refuses_what_it_refuses_elsewhere(text: str) -> None:
    with pytest.raises((einops.EinopsError, NotImplementedError, IndexError, OxError)):
        evaluate(text, {name: ox.tensor(a) for name, a in ARRAYS.items()})


def uses(text: str) -> list[str]:
    """The arrays with a batch that an expression computes with."""
    return [name for name in ("ims", "x", "seq", "v", "q", "k") if re.search(rf"\b{name}\b", re.sub("'.*?'", "", text))]


@rows("text", BATCH)
def test_exported_it_holds_at_other_batch_sizes(text: str, tmp_path: Path) -> None:
    """`save` records at two batch sizes and proves at three: a size that was baked in is an error."""
    narrow = {name: np.concatenate([a, a])[:4].astype(np.float32) / 8 for name, a in ARRAYS.items()}
    inputs = uses(text)
    constants = {name: ox.tensor(ARRAYS[name].astype(np.float32)) for name in ARRAYS if name not in inputs}

    def model(*given: Any) -> Any:
        return evaluate(text, {**constants, **dict(zip(inputs, given, strict=True))})

    example = tuple(ox.tensor(narrow[name]) for name in inputs)
    report = ox.export.save(model, tmp_path / "model.onnx", example, input_names=inputs)
    assert [row.batch for row in report.rows if row.batch is not None] == [1, 2, 7]


def test_a_repeat_with_a_count_of_the_run_is_an_expand(tmp_path: Path) -> None:
    class Prompt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(ox.rand(1, 1, 6))

        def forward(self, x: Any) -> Any:
            tokens = repeat(self.token, "1 1 d -> b n d", b=x.shape[0], n=x.shape[1])
            return rearrange([tokens, x], "two b n d -> b n (two d)")

    path = tmp_path / "m.onnx"
    ox.export.save(Prompt(), path, ox.rand(3, 5, 6), dims={"x": ["batch", "steps", 6]})
    assert "Expand" in [node.op_type for node in onnx.load(path).graph.node]
    net = ox.export.load(path)
    for shape in ((1, 9, 6), (8, 2, 6)):
        assert net(ox.zeros(*shape)).shape == (*shape[:2], 12)


def test_sizes_of_one_recording_are_not_those_of_the_next(tmp_path: Path) -> None:
    """einops keeps what it worked out for a shape: other recordings and eager calls of the same sizes stand between."""
    model = nn.Sequential(Rearrange("b (h d) -> (b h) d", h=2), nn.Linear(3, 3), Reduce("(b h) d -> b d", "mean", h=2))
    for _ in range(2):
        for size in (4, 2, 3):
            model(ox.rand(size, 6))
        ox.export.save(model, tmp_path / "m.onnx", ox.rand(4, 6))


@rows(
    "text",
    [
        "rearrange(v, 'b (n two) -> n (b two)', two=1)",
        "reduce(x, 'b c (h h2) w -> b c h', 'max', h2=2)",
        "reduce(v, 'b n -> b', 'prod')",
        "repeat(v, 'b n -> (n c) b', c=3)",
        "einsum(v, v, 'b i, b j -> b i j')",
        "pack([v, v * v], 'b *')[0]",
        "unpack(v, [[2, 2], [3]], 'b *')[0]",
    ],
)
def test_gradients(text: str) -> None:
    names = uses(text)
    inputs = tuple(ox.tensor(ARRAYS[n] / 10, requires_grad=True) for n in names)

    def function(*given: Any) -> Any:
        return evaluate(text, dict(zip(names, given, strict=True)))

    assert ox.autograd.gradcheck(function, inputs)
    assert ox.autograd.gradgradcheck(function, inputs)


def test_layers_are_modules(tmp_path: Path) -> None:
    ox.manual_seed(0)
    model = nn.Sequential(
        Rearrange("b c (h p1) (w p2) -> b (h w) (c p1 p2)", p1=2, p2=2),
        EinMix("b n (h c) -> b n (h d)", "h c d", "h d", h=4, c=3, d=5),
        nn.GELU(),
        EinMix("b n c -> b m c", "n m", n=4, m=3),
        Reduce("b n c -> b c", "mean"),
    )
    assert list(model.state_dict()) == ["1.weight", "1.bias", "3.weight"]
    assert model[1].weight.abs().max() <= 1 and model[1].bias.shape == (1, 1, 4, 5)
    x = ox.rand(6, 3, 4, 4)
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    np.testing.assert_array_equal(copy.deepcopy(model)(x).detach().numpy(), model(x).detach().numpy())
    assert "Rearrange('b c (h p1) (w p2) -> b (h w) (c p1 p2)', p1=2, p2=2)" in repr(model)
    assert "EinMix('b n c -> b m c', 'n m', n=4, m=3)" in repr(model)
    ox.export.save(model, tmp_path / "m.onnx", x)


def test_a_bad_layer_and_a_bad_input() -> None:
    with pytest.raises(einops.EinopsError, match="only on one side"):
        Rearrange("b c -> b d")
    with pytest.raises(einops.EinopsError, match="of weight should be specified"):
        EinMix("b c -> b d", "c d", c=3)
    with pytest.raises(einops.EinopsError, match="Shape mismatch"):
        Rearrange("b (h d) -> b h d", h=4)(ox.rand(2, 6))
    with pytest.raises(OxError) as caught:
        einsum(ox.rand(2, 3), ox.rand(4, 5), "a b, b c -> a c")
    assert "test_einops.py" in str(caught.value.where), "the user's line, not einops'"


ORDERS = {
    "einops first": "import einops, ox",
    "ox first": "import ox, einops",
    "functions only": "import ox\nfrom einops import rearrange\nimport einops",
    "einops used first": "import einops, numpy\neinops.rearrange(numpy.ones((2, 3)), 'a b -> b a')\nimport ox",
    "layers first": "import ox\nfrom ox.einops import Rearrange\nimport einops",
}


@pytest.mark.parametrize("order", ORDERS)
def test_einops_finds_ox_in_any_order_of_imports(order: str) -> None:
    code = ORDERS[order] + "\nprint(*einops.rearrange(ox.zeros(2, 3), 'a b -> b a').shape, einops._backends.__loader__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("3 2 <_frozen_importlib_external.SourceFileLoader"), done.stderr


def test_the_layers_without_einops_say_what_to_install() -> None:
    code = "import sys; sys.modules['einops'] = None\nfrom ox.einops import Rearrange"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "ModuleNotFoundError: ox.einops needs einops: pip install einops" in done.stderr


def test_a_function_as_a_reduction() -> None:
    x = ARRAYS["x"]
    got = reduce(ox.tensor(x), "b c h w -> b h", lambda t, dims: t.var(dim=dims, correction=0))
    np.testing.assert_allclose(got.numpy(), reduce(x, "b c h w -> b h", np.var), rtol=1e-12)


def test_ox_alone_does_not_load_einops() -> None:
    code = "import sys, ox\nprint([name for name in sys.modules if name.startswith('einops')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120).stdout == "[]\n"
