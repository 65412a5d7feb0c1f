"""Code that compares sizes: what is recorded holds for some sizes, and the file says which, and is used only there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError, ServeError, ShapeError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model

F = nn.functional
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(8, 20, 4)).astype(np.float32)
OPEN: dict[str, list[int | str]] = {"x": ["batch", "seq", 4]}


def save(function: Callable[..., Any], path: Path, example: Any = ROWS, dims: Any = OPEN, **options: Any) -> Any:
    return ox.export.save(function, path / "m.onnx", example, dims=dims, **options)


def pooled(x: Any, k: int) -> Any:
    return F.max_pool1d(x.transpose(1, 2), k, k)


BRANCHES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "above": (lambda x: x * 2 if x.shape[1] > 16 else x + 1, "seq in 17.."),
    "below": (lambda x: x * 2 if x.shape[1] > 100 else x + 1, "seq in 1..100"),
    "turned": (lambda x: x * 2 if 16 < x.shape[1] else x + 1, "seq in 17.."),  # noqa: SIM300
    "a remainder": (lambda x: x * 2 if x.shape[1] % 4 == 0 else x + 1, "seq in 4.. in steps of 4"),
    "truth": (lambda x: x + 1 if x.shape[1] % 4 else x * 2, "seq in 4.. in steps of 4"),
    "max": (lambda x: x * max(x.shape[1], 8), "seq in 8.."),
    "min": (lambda x: x[:, : min(x.shape[1], 12)], "seq in 13.."),
    "a quotient": (lambda x: x * 2 if x.shape[1] / x.shape[2] > 2 else x, "seq in 9.."),
    "a root": (lambda x: x * 2 if x.shape[1] ** 0.5 > 3 else x, "seq in 10.."),
    "squeeze": (lambda x: x[:, :, :1].squeeze(1) * 2, "seq in 2.."),
    "of a value inside": (lambda x: x * (2 if pooled(x, 2).shape[2] > 5 else 3), "seq in 12.."),
    "of two inside": (lambda x: x * (2 if pooled(x, 2).shape[2] * 2 == x.shape[1] else 3), "seq in 2.. in steps of 2"),
    "split": (lambda x: x.split(8, 1)[2] * 2, "seq in 17..24"),
    "split evenly": (lambda x: x.split(10, 1)[1] * 2, "seq in 11..20"),
    "chunk": (lambda x: x.chunk(3, 1)[2] * 2, "seq in 5.."),
    "two sizes": (lambda x: x * 2 if x.shape[1] > x.shape[0] else x, "seq > batch"),
    "a stride": (lambda x: x * 2 if x.stride()[0] > 40 else x, "seq in 11.."),
    "one stride": (lambda x: x * 2 if x.stride(0) > 40 else x, "seq in 11.."),
    "many rows": (lambda x: x * 2 if x.shape[0] < 100 else x, "batch in 1..99"),
    "nothing": (lambda x: x * 2 if (x + 1).shape[1] == x.shape[1] else x, ""),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_comparison_of_sizes_is_said_in_the_file(tmp_path: Path, name: str) -> None:
    function, rules = BRANCHES[name]
    report = save(function, tmp_path, input_names=["x"])
    assert str(report.contract.rules) == rules and not report.unstated
    assert (f"for {rules}" in str(report)) is bool(rules)
    session = ort.InferenceSession(tmp_path / "m.onnx")
    loaded = ox.export.load(tmp_path / "m.onnx")
    taken = refused = 0
    for batch, seq in [
        (1, 7),
        (2, 8),
        (1, 9),
        (1, 12),
        (2, 13),
        (1, 16),
        (3, 17),
        (2, 20),
        (1, 44),
        (2, 101),
        (4, 2),
        (3, 1),
    ]:
        x = RANDOM.normal(size=(batch, seq, 4)).astype(np.float32)
        if report.contract.rules.broken({"batch": batch, "seq": seq}) is None:
            expected = function(ox.from_numpy(x)).numpy()
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(loaded(x).numpy(), expected, rtol=1e-5, atol=1e-6)
            taken += 1
        else:
            refused += 1
            with pytest.raises(ShapeError, match="not for inputs of these sizes"):
                loaded(x)
    assert taken >= 2 and (refused or name in ("nothing", "many rows"))


def test_the_proof_runs_at_the_border(tmp_path: Path) -> None:
    report = save(lambda x: x * 2 if x.shape[1] > 16 else x + 1, tmp_path, input_names=["x"])
    assert min(row.sizes["seq"] for row in report.rows) == 17
    report = save(lambda x: x * 2 if x.shape[1] <= 60 else x + 1, tmp_path, input_names=["x"])
    assert max(row.sizes["seq"] for row in report.rows) == 60


def test_a_border_that_the_model_does_not_reach(tmp_path: Path) -> None:
    """The convolution needs 5, which no comparison of the user says."""

    def model(x: Any) -> Any:
        y = F.conv1d(x.transpose(1, 2), ox.ones(1, 4, 5))
        return y * 2 if x.shape[1] > 2 else y

    assert str(save(model, tmp_path, input_names=["x"]).contract.rules) == "seq in 5.."


def test_what_a_comparison_cannot_say_is_reported(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        many = x.reshape(-1, 2, 2).transpose(0, 1).reshape(-1, 4)[:: 3 + x.shape[1] % 2]
        return x * 2 if many.shape[0] > 3 else x

    report = save(model, tmp_path, input_names=["x"])
    assert len(report.unstated) == 1 and "return x * 2 if many.shape[0] > 3 else x" in report.unstated[0]
    assert report.unstated[0] in str(report)


# what makes a plain number of a size, which 100 would turn: no recording is near that
NUMBERS: dict[str, Callable[[Any], bool]] = {
    "int": lambda x: int(x.shape[1]) > 100,
    "int of a quotient": lambda x: int(x.shape[1] / 2) > 50,
    "float": lambda x: float(x.shape[1]) > 100,
    "float of a root": lambda x: float(x.shape[1] ** 0.5) > 10,
    "math.sqrt": lambda x: math.sqrt(x.shape[1]) > 10,
    "round": lambda x: round(x.shape[1] / 2) > 50,
    "in a set": lambda x: x.shape[1] in {3, 5},
    "a key": lambda x: {3: True}.get(x.shape[1], False),
    "a shape as a key": lambda x: x.shape in {(2, 3, 4)},
    "bits": lambda x: x.shape[1] & 64 == 64,
    "a shift": lambda x: x.shape[1] >> 6 == 2,
    "math.isqrt": lambda x: math.isqrt(x.shape[1]) > 10,
    "math.gcd": lambda x: math.gcd(101, x.shape[1]) > 1,
    "math.log2": lambda x: math.log2(x.shape[1]) > 7,
    "an index": lambda x: x.shape[1].__index__() > 100,
    "the length in bits": lambda x: x.shape[1].bit_length() > 6,
    "a power of two": lambda x: 2 ** x.shape[1] > 2**100,
    "a large power": lambda x: x.shape[1] ** 5 > 100**5,
    "times a fraction": lambda x: x.shape[1] * 0.5 > 50,
    "divided by a fraction": lambda x: x.shape[1] / 2.5 > 40,
    "a stride of turned memory": lambda x: x.transpose(1, 2).stride(0) > 400,
    "numpy": lambda x: bool((np.array(x.shape) > 100).any()),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_a_size_became_is_reported(tmp_path: Path, name: str) -> None:
    """A branch on it is not seen, and may be another one at other sizes."""
    report = save(lambda x: x * 2 if NUMBERS[name](x) else x + 1, tmp_path, input_names=["x"])
    assert len(report.unstated) == 1 and "test_size_rules.py" in report.unstated[0]
    assert any(line.startswith("right only where") for line in report.limits)


# branches that no comparison of a size tells: of a number that a size became, or that Python's own functions read
UNTOLD: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (lambda x: int(x.shape[1]) > 8, "seq in 9..256"),
    "float": (lambda x: float(x.shape[1]) > 8, "seq in 9..256"),
    "numpy": (lambda x: bool(np.sqrt(x.shape[1]) > 3), "seq in 10..256"),
    "a set": (lambda x: x.shape[1] not in {5, 7}, "seq in 8..256"),
    "a string": (lambda x: len(str(x.shape[1])) > 1, "seq in 10..256"),
    "a format": (lambda x: len(f"{x.shape[1]:d}") > 1, "seq in 10..256"),
    "a name imported from math": (lambda x: isqrt(x.shape[1]) > 3, "seq in 16..256"),
    "a list": (lambda x: len([0] * x.shape[1]) > 8, "seq in 9..256"),
    "a range": (lambda x: sum(range(x.shape[1])) > 36, "seq in 10..256"),
    "a plain shape": (lambda x: x.static_shape[1] > 8, "seq in 9..256"),
    "an error that is caught": (lambda x: not_of_ten(x), "seq in 11..256"),
    "an error of the model's own": (lambda x: checked(x.static_shape[1]), "seq in 6.."),
}


def not_of_ten(x: Any) -> bool:
    try:
        return (x + ox.ones(10, 1)).ndim == 0
    except ox.OxError:
        return True


def checked(size: int) -> bool:
    if size < 6:
        raise ValueError("too short")
    return True


@pytest.mark.parametrize("name", UNTOLD)
def test_a_branch_that_no_comparison_tells_is_probed(tmp_path: Path, name: str) -> None:
    """What the file answers is what the model does, or it is refused, in Python and by the server."""
    condition, rules = UNTOLD[name]

    def function(x: Any) -> Any:
        return x * 2 if condition(x) else x + 1

    report = save(function, tmp_path, np.resize(ROWS, (8, 64, 4)), input_names=["x"], golden=None)
    assert str(report.contract.rules) == rules
    loaded = ox.export.load(tmp_path / "m.onnx")
    served = Model(tmp_path / "m.onnx", ModelConfig(device="cpu"), RequestLimits()).signature
    answered = 0
    for size in (*range(1, 20), 63, 65, 99, 100, 128, 256, 257):
        x = np.resize(ROWS, (3, size, 4))
        if report.contract.rules.broken({"batch": 3, "seq": size}) is None:
            served.rows_and_key({"x": x})
            np.testing.assert_array_equal(loaded(x).numpy(), function(ox.from_numpy(x)).numpy())
            answered += 1
        else:
            with pytest.raises(ShapeError, match="not for inputs of these sizes"):
                loaded(x)
            with pytest.raises(ServeError, match="not for inputs of these sizes"):
                served.rows_and_key({"x": x})
    assert 3 <= answered < 26


def test_sizes_that_became_numbers_are_probed_together(tmp_path: Path) -> None:
    """Each alone is right far out, and both together are not."""

    def function(x: Any) -> Any:
        return x.sum(int(np.argmax(x.shape[:2])))

    report = save(function, tmp_path, np.resize(ROWS, (8, 64, 4)), input_names=["x"], golden=None)
    rules = report.contract.rules
    taken = [(b, n) for b in range(1, 120, 7) for n in range(1, 300, 7) if not rules.broken({"batch": b, "seq": n})]
    assert taken and all(n > b for b, n in taken)


def test_a_batch_that_became_a_number(tmp_path: Path) -> None:
    report = save(lambda x: x * 2 if int(x.shape[0]) > 40 else x + 1, tmp_path, input_names=["x"])
    assert report.contract.rules.ranges["batch"].max == 40
    report = save(lambda x: x * (int(x.shape[0]) > 0), tmp_path, input_names=["x"])
    assert "batch" not in report.contract.rules.ranges and len(report.unstated) == 1


def test_a_declared_size_is_probed_up_to_its_limit(tmp_path: Path) -> None:
    dims = {"x": ["batch", ox.Dim("seq", max=400), 4]}
    report = save(lambda x: x * (int(x.shape[1]) > 0), tmp_path, input_names=["x"], dims=dims)
    assert str(report.contract.rules) == "seq in 1..400"
    report = save(lambda x: x * 2 if int(x.shape[1]) > 300 else x, tmp_path, input_names=["x"], dims=dims)
    assert str(report.contract.rules) == "seq in 1..300"


def test_the_distance_of_a_size_is_a_comparison(tmp_path: Path) -> None:
    report = save(lambda x: x * 2 if abs(x.shape[1] - 30) < 5 else x, tmp_path, np.resize(ROWS, (8, 28, 4)), OPEN)
    assert str(report.contract.rules) == "seq in 26..34" and not report.unstated


def test_a_number_that_is_the_same_at_all_sizes_is_not(tmp_path: Path) -> None:
    """As the width of the heads, by whose root people divide."""
    report = save(lambda x: x @ x.mT / math.sqrt(x.size(-1)), tmp_path, input_names=["x"])
    assert not report.unstated and not report.limits


def test_a_length_is_a_size(tmp_path: Path) -> None:
    report = save(lambda x: x * 2 if len(x[0]) > 100 else x + 1, tmp_path, input_names=["x"])
    assert not report.unstated and str(report.contract.rules) == "seq in 1..100"


def test_numbers_that_ox_makes_of_sizes_are_none_of_the_users(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    report = save(lambda x: layer(F.pad(x, (0, 0, 0, 3)).flip(1)).chunk(2, 1)[0], tmp_path)
    assert not report.unstated


@pytest.mark.parametrize("root", [math.log2, math.isqrt], ids=["log2", "isqrt"])
@pytest.mark.parametrize("length", [9, 20])
def test_a_number_that_a_size_became_in_steps(tmp_path: Path, root: Any, length: int) -> None:
    with pytest.raises(ExportError, match="the size 'seq' is baked into the model") as caught:
        save(lambda x: x * int(root(x.shape[1])), tmp_path, ROWS[:, :length], input_names=["x"])
    assert "test_size_rules.py" in str(caught.value.where) and not list(tmp_path.iterdir())


def test_another_path_for_one_sample_is_refused_with_its_line(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        return x * 2 if x.shape[0] != 1 else x

    with pytest.raises(ExportError, match="another path at another batch size") as caught:
        save(model, tmp_path, input_names=["x"])
    assert "return x * 2 if x.shape[0] != 1 else x" in str(caught.value.where)
    report = save(model, tmp_path, dims={"x": [ox.Dim("batch", min=2), 20, 4]}, input_names=["x"])
    assert str(report.contract.rules) == "batch in 2.." and [row.batch for row in report.rows] == [2, 7]


def test_a_number_read_from_an_integer_input(tmp_path: Path) -> None:
    """By way of NumPy, where no operator sees it."""
    lengths = np.array([3, 4, 2, 4, 3, 1])
    with pytest.raises(ExportError, match="values of the example are baked into the model"):
        save(lambda x, n: x * int(n.array.max()), tmp_path, (ROWS[:6], lengths), dims=None)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deeper = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)
        self.up, self.out = nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv2d(8, 2, 3, 1, 1)
        self.matched = False

    def forward(self, image: Any) -> Any:
        a = self.down(image)
        b = self.up(self.deeper(a))
        if self.matched and b.shape != a.shape:
            b = F.interpolate(b, a.shape[2:])
        return self.out(ox.cat([b, a], 1))


IMAGES = RANDOM.normal(size=(2, 3, 32, 32)).astype(np.float32)


def test_a_declared_multiple(tmp_path: Path) -> None:
    h, w = ox.Dim("h", min=16, max=96, multiple_of=16), ox.Dim("w", multiple_of=16)
    report = save(UNet(), tmp_path, IMAGES, {"image": ["batch", 3, h, w]})
    assert str(report.contract.rules) == "h in 16..96 in steps of 16, w in 16.. in steps of 16"
    assert report.contract.inputs[0].dims == ("batch", 3, "h", "w")
    assert {row.sizes["h"] for row in report.rows} >= {16, 32, 96}
    loaded = ox.export.load(tmp_path / "m.onnx")
    assert loaded(IMAGES[:, :, :16, :16]).shape == (2, 2, 8, 8)
    with pytest.raises(ShapeError, match="not for inputs of these sizes"):
        loaded(IMAGES[:, :, :20, :16])
    again = ox.export.save(loaded, tmp_path / "again.onnx", IMAGES)
    assert again.contract.rules == report.contract.rules


def patches(image: Any) -> Any:
    n, c, h, w = image.shape
    return image.reshape(n, c, h // 14, 14, w // 6, 6).mean((3, 5))


def pooled_and_back(image: Any) -> Any:
    return image + F.interpolate(F.max_pool2d(image, 8), scale_factor=8)


MULTIPLES: dict[str, tuple[Any, Any, str]] = {
    "a U-Net": (UNet(), IMAGES, "ox.Dim('h', multiple_of=4), ox.Dim('w', multiple_of=4) in dims"),
    "pooled and back": (pooled_and_back, IMAGES, "ox.Dim('h', multiple_of=8), ox.Dim('w', multiple_of=8) in dims"),
    "patches": (patches, np.resize(IMAGES, (2, 3, 28, 36)), "'h', multiple_of=14), ox.Dim('w', multiple_of=6) in dims"),
    "one of both": (lambda image: image.unflatten(3, (-1, 4)).mean(3), IMAGES, "ox.Dim('w', multiple_of=4) in dims"),
    "none": (lambda image: image + ox.ones(32, 1), IMAGES, "sizes from x.shape"),
}


@pytest.mark.parametrize("name", MULTIPLES)
def test_the_hint_names_the_multiple(tmp_path: Path, name: str) -> None:
    """And with it the model is exported."""
    model, images, hint = MULTIPLES[name]
    with pytest.raises(ExportError, match="baked into the model") as caught:
        save(model, tmp_path, images, {"image": ["batch", 3, "h", "w"]}, input_names=["image"])
    assert hint in str(caught.value.hint)
    if name == "none":
        return
    steps = {dim: int(step) for dim, step in re.findall(r"Dim\('(\w)', multiple_of=(\d+)\)", str(caught.value.hint))}
    sizes = [ox.Dim(dim, multiple_of=steps.get(dim, 1)) for dim in "hw"]
    report = save(model, tmp_path, images, {"image": ["batch", 3, *sizes]}, input_names=["image"])
    assert all(report.contract.rules.ranges[dim].multiple_of == step for dim, step in steps.items())


def test_the_second_recording_keeps_to_what_the_first_compared(tmp_path: Path) -> None:
    model = UNet()
    model.matched = True
    report = save(model, tmp_path, IMAGES, {"image": ["batch", 3, "h", "w"]})
    assert str(report.contract.rules) == "h in 4.. in steps of 4, w in 4.. in steps of 4"


def test_sizes_that_follow_from_others(tmp_path: Path) -> None:
    """A cache of n keys, one more after the step, and a mask of that size."""

    def step(x: Any, cache: Any, mask: Any) -> Any:
        keys = ox.cat([cache, x], 1)
        return (x @ keys.transpose(1, 2)) * mask.unsqueeze(1), keys

    n = ox.Dim("n", max=64)
    x, cache, mask = ROWS[:2, :1], ROWS[:2, :9], np.ones((2, 10), np.float32)
    dims = {"x": ["batch", 1, 4], "cache": ["batch", n, 4], "mask": ["batch", n + 1]}
    report = save(step, tmp_path, (x, cache, mask), dims)
    assert report.dims.startswith("x [batch, 1, 4], cache [batch, n, 4], mask [batch, n + 1]")
    assert str(report.contract.rules) == "n in 1..64"
    loaded = ox.export.load(tmp_path / "m.onnx")
    assert loaded(x, ROWS[:2, :3], np.ones((2, 4), np.float32))[1].shape == (2, 4, 4)
    with pytest.raises(ShapeError) as caught:
        loaded(x, ROWS[:2, :3], np.ones((2, 5), np.float32))
    assert caught.value.expected == "n + 1 = 4"
    with pytest.raises(ArgumentError, match="does not follow from 'n'"):
        save(step, tmp_path, (x, cache, mask[:, :9]), dims)


def attends(x: Any, past: Any, mask: Any) -> Any:
    keys = ox.cat([past, x], 1)
    places = ox.arange(mask.shape[1])
    seen = (places.unsqueeze(0) <= places[mask.shape[1] - x.shape[1] :].unsqueeze(1)) & mask.bool().unsqueeze(1)
    return nn.functional.scaled_dot_product_attention(x, keys, keys, seen), keys


def test_the_sum_of_two_sizes(tmp_path: Path) -> None:
    """Several tokens past a cache, and a mask of both."""
    past, new = ox.Dim("past", min=0, max=64), ox.Dim("new")
    dims = {"x": ["batch", new, 4], "past": ["batch", past, 4], "mask": ["batch", past + new]}
    report = save(attends, tmp_path, (ROWS[:2, :3], ROWS[:2, :9], np.ones((2, 12), np.int64)), dims)
    assert report.dims.startswith("x [batch, new, 4], past [batch, past, 4], mask [batch, past + new]")
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    for old, fresh in ((0, 5), (7, 1), (2, 2), (20, 6)):
        mask = (np.arange(2 * (old + fresh)).reshape(2, -1) % 5 > 0).astype(np.int64)
        feed = {"x": ROWS[:2, :fresh], "past": ROWS[1:3, :old], "mask": mask}
        with ox.no_grad():
            expected = attends(*map(ox.tensor, feed.values()))
        for got, want in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_allclose(got, want.numpy(), atol=1e-5)
    with pytest.raises(ShapeError) as caught:
        ox.export.load(tmp_path / "m.onnx")(ROWS[:2, :3], ROWS[:2, :9], np.ones((2, 13), np.int64))
    assert caught.value.expected == "past + new = 12"
    with pytest.raises(ArgumentError, match="does not follow from 'past' and 'new'"):
        save(attends, tmp_path, (ROWS[:2, :3], ROWS[:2, :9], np.ones((2, 13), np.int64)), dims)


def test_a_size_that_a_sum_tells(tmp_path: Path) -> None:
    """No input has the size `b` itself."""
    a, b = ox.Dim("a"), ox.Dim("b")
    dims = {"x": ["batch", a, 4], "both": ["batch", 2 * (a + b) - a, 4]}
    report = save(lambda x, both: x.sum(1) + both.sum(1), tmp_path, (ROWS[:, :4], ROWS[:, :10]), dims)
    assert report.contract.inputs[1].dims == ("batch", "2 * (a + b) - a", 4)
    assert report.limits == []  # the name says it


def test_half_a_size(tmp_path: Path) -> None:
    n = ox.Dim("n", multiple_of=2)
    dims = {"x": ["batch", n, 4], "half": ["batch", n // 2, 4]}
    report = save(lambda x, half: x[:, ::2] + half, tmp_path, (ROWS, ROWS[:, :10]), dims)
    assert report.contract.inputs[1].dims == ("batch", "n // 2", 4)


def test_a_size_that_only_another_tells(tmp_path: Path) -> None:
    """No input has the size k itself: an odd size is none, and one of none that k can have."""
    k = ox.Dim("k")
    save(lambda x: x * 2 if x.shape[1] % 2 == 0 else x, tmp_path, input_names=["x"], dims={"x": ["batch", 2 * k, 4]})
    loaded = ox.export.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(loaded(ROWS[:2, :6]).numpy(), 2 * ROWS[:2, :6])
    with pytest.raises(ShapeError) as caught:
        loaded(ROWS[:2, :3])
    assert caught.value.expected == "2 * k, for k in 1.."
    model = Model(tmp_path / "m.onnx", ModelConfig(device="cpu"), RequestLimits())
    model.signature.rows_and_key({"x": ROWS[:2, :6]})
    with pytest.raises(ServeError, match="not for inputs of these sizes"):
        model.signature.rows_and_key({"x": ROWS[:2, :3]})

    m = ox.Dim("m", min=2, max=8, multiple_of=2)
    save(lambda x: x * 2, tmp_path, input_names=["x"], example=ROWS[:, :9], dims={"x": ["batch", 2 * m + 1, 4]})
    loaded = ox.export.load(tmp_path / "m.onnx")
    assert [n for n in range(1, 21) if takes(loaded, ROWS[:1, :n])] == [5, 9, 13, 17]


def takes(loaded: Any, *inputs: Any) -> bool:
    try:
        loaded(*inputs)
    except ShapeError:
        return False
    return True


def test_nothing_is_a_size_where_it_is_declared(tmp_path: Path) -> None:
    """And the proof runs there: a Linear gives another shape."""
    save(lambda x: x * 2, tmp_path, input_names=["x"])
    loaded = ox.export.load(tmp_path / "m.onnx")
    with pytest.raises(ShapeError) as caught:
        loaded(ROWS[:2, :0])
    assert caught.value.expected == "seq in 1.."
    assert not takes(loaded, ROWS[:0])
    model = Model(tmp_path / "m.onnx", ModelConfig(device="cpu"), RequestLimits())
    with pytest.raises(ServeError, match="not for inputs of these sizes"):
        model.signature.rows_and_key({"x": ROWS[:2, :0]})

    n = ox.Dim("n", min=0)
    report = save(lambda x: x * 2, tmp_path, input_names=["x"], dims={"x": ["batch", n, 4]})
    assert str(report.contract.rules) == "n in 0.." and report.rows[-1].sizes == {"n": 0}
    assert ox.export.load(tmp_path / "m.onnx")(ROWS[:2, :0]).shape == (2, 0, 4)
    Model(tmp_path / "m.onnx", ModelConfig(device="cpu"), RequestLimits()).signature.rows_and_key({"x": ROWS[:2, :0]})
    with pytest.raises(ExportError, match="gives another 'output' than the model"):
        save(nn.Linear(4, 6), tmp_path, input_names=["x"], dims={"x": ["batch", n, 4]})


def test_what_cannot_be_declared(tmp_path: Path) -> None:
    for limits in ({"min": 5, "max": 4}, {"multiple_of": 0}, {"min": 33, "max": 60, "multiple_of": 32}, {"min": -1}):
        with pytest.raises(ArgumentError):
            ox.Dim("n", **limits)
    with pytest.raises(ArgumentError, match="none that was declared") as caught:
        save(lambda x: x, tmp_path, dims={"x": ["batch", ox.Dim("n", max=8), 4]}, input_names=["x"])
    assert caught.value.expected == "n in 1..8" and caught.value.got == "20"
    with pytest.raises(ExportError, match="does not run at the smallest n that was declared"):
        save(
            lambda x: F.conv1d(x.transpose(1, 2), ox.ones(1, 4, 5)),
            tmp_path,
            dims={"x": ["batch", ox.Dim("n", min=2), 4]},
            input_names=["x"],
        )


def test_integers_that_are_places_in_a_size(tmp_path: Path) -> None:
    """Edges of a graph: node numbers stay below the number of nodes, and both may vary."""
    edges = np.array([[0, 1, 2, 5, 4, 3, 2], [1, 2, 3, 4, 5, 0, 5]])

    def messages(x: Any, edges: Any) -> Any:
        return x + ox.zeros_like(x).index_add(0, edges[1], x[edges[0]])

    report = save(messages, tmp_path, (ROWS[0, :6], edges), {"x": ["nodes", 4], "edges": [2, "edges"]})
    assert {row.sizes["nodes"] for row in report.rows} >= {4, 5, 6, 13}


def test_a_loaded_file_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.export.two_sizes import Subject

    save(lambda x: x * 2, tmp_path, input_names=["x"])
    loaded, count = ox.export.load(tmp_path / "m.onnx"), []
    record = Subject.record
    monkeypatch.setattr(Subject, "record", lambda *a, **k: (count.append(1), record(*a, **k))[1])
    ox.export.save(loaded, tmp_path / "again.onnx", ROWS)
    assert len(count) == 1


def test_the_server_refuses_sizes_that_the_file_is_not_for(tmp_path: Path) -> None:
    save(lambda x: x * 2 if x.shape[1] > 16 else x + 1, tmp_path, input_names=["x"])
    model = Model(tmp_path / "m.onnx", ModelConfig("cpu"), RequestLimits())
    assert "for seq in 17.." in model.describe()
    assert model.signature.rows_and_key({"x": ROWS[:3]})[0] == 3
    with pytest.raises(ServeError, match="not for inputs of these sizes") as caught:
        model.signature.rows_and_key({"x": ROWS[:3, :16]})
    assert caught.value.expected == "seq in 17.." and caught.value.status == 400


def test_the_server_does_not_batch_what_is_for_some_batches_only(tmp_path: Path) -> None:
    save(lambda x: x * 2 if x.shape[0] < 100 else x, tmp_path, dims=None, input_names=["x"])
    model = Model(tmp_path / "m.onnx", ModelConfig("cpu"), RequestLimits())
    assert "batching off: the file is for batch in 1..99" in model.describe()
    with pytest.raises(ServeError, match="not for inputs of these sizes"):
        model.signature.rows_and_key({"x": np.zeros((100, 20, 4), np.float32)})


def test_pytorchs_ways_to_name_sizes(tmp_path: Path) -> None:
    """`dynamic_axes` of `torch.onnx.export`, `dynamic_shapes` of `torch.export.export`, by name and by position."""

    def model(x: Any, y: Any) -> Any:
        return x + y[:, None]

    example = (ROWS, ROWS[:, 0])
    shown = "a [batch, seq, 4], b [batch, 4] → output [batch, seq, 4]"
    ways: list[dict[str, Any]] = [
        {"dynamic_axes": {"a": {0: "batch", 1: "seq"}, "b": [0], "output": {0: "batch"}}},
        {"dynamic_shapes": {"x": {0: "batch", 1: "seq"}, "y": ("batch", None)}},
        {
            "dynamic_shapes": {
                "a": {0: ox.Dim.DYNAMIC, -2: ox.export.Dim("seq")},
                "b": {0: ox.Dim.AUTO, 1: ox.Dim.STATIC},
            }
        },
        {"dynamic_shapes": ({0: "batch", 1: "seq"}, [ox.Dim("batch"), 4])},
    ]
    for way in ways:
        assert save(model, tmp_path, example, None, input_names=["a", "b"], **way).dims == shown
    assert save(model, tmp_path, example, None, dynamic_shapes=({1: ox.Dim.DYNAMIC}, None)).dims.startswith(
        "x [8, x_1, 4]"
    )
    wrong: list[dict[str, Any]] = [
        {"dynamic_axes": {"x": {3: "far"}}},
        {"dynamic_shapes": {"z": None}},
        {"dynamic_shapes": (None,)},
        {"dynamic_shapes": {"x": ("batch",)}},
        {"dynamic_shapes": {}, "dynamic_axes": {}},
    ]
    for way in wrong:
        with pytest.raises(ArgumentError):
            save(model, tmp_path, example, None, **way)


def test_several_examples_show_which_sizes_vary(tmp_path: Path) -> None:
    seen = []

    def model(image: Any, boxes: Any) -> Any:
        seen.append(image.static_shape[2:])
        return UNet.forward(net, image).sum() + boxes

    net = UNet()
    sizes = [(32, 16), (64, 48), (16, 80)]
    examples = [
        (RANDOM.normal(size=(4, 3, h, w)).astype(np.float32), ROWS[:4, : i + 2]) for i, (h, w) in enumerate(sizes)
    ]
    report = save(model, tmp_path, examples[0], None, examples=examples[1:], golden=None)
    assert report.dims.startswith("image [batch, 3, image_2, image_3], boxes [batch, boxes_1, 4]")
    assert set(seen) == set(sizes)
    assert [tuple(row.sizes.values()) for row in report.rows] == [(32, 16, 2), (64, 48, 3), (16, 80, 4)]
    with pytest.raises(ArgumentError, match="not alike"):
        save(model, tmp_path, examples[0], None, examples=[examples[1][:1]])


def test_swin_with_every_size_open(tmp_path: Path) -> None:
    """Windows of 4 of patches of 2: sizes are padded to multiples of 8, which is nothing for the example. At 8 there is
    one window, which needs fewer copies, and the file is right there, too."""

    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.attend = nn.Conv2d(3, 8, 2, 2), nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, image: Any) -> Any:
            below, beside = (-image.shape[2] % 8, -image.shape[3] % 8)
            if below > 0 or beside > 0:
                image = F.pad(image, (0, beside, 0, below))
            x = self.patches(image).permute(0, 2, 3, 1)
            b, h, w, c = x.shape
            y = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 16, c)
            y = self.attend(y, y, y, need_weights=False)[0]
            rows = y.shape[0] // (h * w // 16)
            y = y.view(rows, h // 4, w // 4, 4, 4, -1).permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)
            return (x + y).mean((1, 2))

    ox.manual_seed(0)
    report = save(Windows(), tmp_path, IMAGES[:, :, :16, :16], {"image": ["batch", 3, "h", "w"]})
    assert str(report.contract.rules) == "h in 8.. in steps of 8, w in 8.. in steps of 8"
    assert {row.sizes["h"] for row in report.rows} >= {8, 16, 24}
