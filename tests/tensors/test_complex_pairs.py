"""Tensors that stand for complex numbers: what they take, what they refuse, gradients, recordings, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import onnxruntime
import pytest
from rows import rows

import ox
from ox import fft
from ox.errors import DTypeError, ShapeError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.nn import functional as F

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
Z = np.fft.rfft(X)

REFUSED = """
z.abs(); ox.abs(z); abs(z); z.angle(); ox.angle(z); z * z; ox.mul(z, z); z.mul(z); z / z; 1 / z; z + 1; 1 + z; z - 1.0
z ** 2; z.square(); z.sqrt(); z.exp(); ox.log(z); z @ z; ox.einsum("ij,ij->i", z, z); z.norm(dim=-1); z * 1j
z.float(); z.to(ox.float64); z.type(ox.float64); z == z; z > 0; z.isreal(); z.max(); z.std(); z.fill_(1); z.mul_(z)
z.copy_(ox.ones(3, 5)); F.mse_loss(z, z); F.relu(z); ox.where(ox.ones(3, 5, 1) > 0, z, z); z.add_(1); z.matmul(z)
ox.cat([z, ox.ones(3, 5)]); ox.sort(z); z.argmax(); z.prod(); ox.cumprod(z, 0)
"""


def parts(text: str) -> list[str]:
    return [p.strip() for line in text.strip().splitlines() for p in line.split("; ")]


def spectrum() -> Any:
    return fft.rfft(ox.tensor(X))


@rows("expression", parts(REFUSED))
def test_what_means_another_thing_is_refused(expression: str) -> None:
    with pytest.raises(DTypeError, match=r"complex numbers(?s:.)*ox\.view_as_real"):
        eval(expression, {"z": spectrum(), "ox": ox, "F": F})


@rows(
    ("expression", "expected"),
    [
        ("z + z - 2 * z / 4", 1.5 * Z), ("-z", -Z), ("z * ox.tensor(3.0)", 3 * Z), ("z.conj()", Z.conj()),
        ("ox.conj(z)", Z.conj()), ("z[0]", Z[0]), ("z[:, 1:3]", Z[:, 1:3]), ("z[:, 2, None]", Z[:, 2, None]),
        ("z[z.real > 0]", Z[Z.real > 0]), ("z[1, ...]", Z[1]), ("z.mean(0)", Z.mean(0)), ("z.sum(dim=1)", Z.sum(1)),
        ("z.transpose(0, 1)", Z.T), ("z.unsqueeze(2)", Z[:, :, None]), ("z.split(2)[1]", Z[2:]), ("z.clone()", Z),
        ("z.roll(1, 1)", np.roll(Z, 1, 1)), ("fft.fftshift(z)", np.fft.fftshift(Z)), ("z.detach().contiguous()", Z),
        ("z.sum()", Z.sum()), ("z.sum(-1)", Z.sum(-1)), ("ox.sum(z, -1, True)", Z.sum(-1, keepdims=True)),
        ("z.mean()", Z.mean()), ("ox.mean(z, dim=(0, 1))", Z.mean()),
        ("z[..., 0]", Z[..., 0]), ("z[..., :2]", Z[..., :2]),
        ("z[:, ..., 1:, None]", Z[:, 1:, None]), ("z.reshape(-1)", Z.reshape(-1)), ("z.view(5, 3)", Z.reshape(5, 3)),
        ("z.transpose(-1, -2)", Z.T), ("z.permute(1, 0)", Z.T), ("z.T", Z.T), ("z.mT", Z.T), ("z.t()", Z.T),
        ("ox.cat([z, z])", np.concatenate([Z, Z])), ("ox.cat([z, z], dim=-1)", np.concatenate([Z, Z], -1)),
        ("ox.stack([z, z], -1)", np.stack([Z, Z], -1)), ("z.unsqueeze(-1)", Z[..., None]), ("z[None].squeeze()", Z),
        ("z.flip(-1)", np.flip(Z, -1)), ("ox.flip(z, (0, 1))", np.flip(Z)), ("ox.roll(z, 2)", np.roll(Z, 2)),
        ("ox.roll(z, (1, -1), (0, -1))", np.roll(Z, (1, -1), (0, 1))), ("z.flatten()", Z.reshape(-1)),
        ("z.index_select(-1, ox.tensor([0, 2]))", Z[:, [0, 2]]), ("z.expand(2, 3, 5)", np.stack([Z, Z])),
        ("z.repeat(2, 1)", np.tile(Z, (2, 1))), ("z * ox.arange(5.0)", Z * np.arange(5)),
        ("z.cumsum(-1)", Z.cumsum(-1)),
        ("z * (z.real > 0).float()", Z * (Z.real > 0)), ("ox.ones(2, 1, 1) * z", np.stack([Z, Z])),
        ("z / ox.arange(1.0, 6.0)", Z / np.arange(1, 6)), ("ox.unbind(z, -1)[1]", Z[:, 1]),
        ("z.chunk(2, -1)[1]", Z[:, 3:]), ("z.diff()", np.diff(Z)), ("ox.fft.fft(z)", np.fft.fft(Z)),
        ("fft.fftshift(z, -1)", np.fft.fftshift(Z, -1)), ("z.cpu()", Z), ("next(iter(z))", Z[0]),
    ],
)  # fmt: skip
def test_what_is_the_same_stays(expression: str, expected: Any) -> None:
    got = eval(expression, {"z": spectrum(), "ox": ox, "fft": fft})
    assert got.is_complex() and ox.is_complex(got) and not got.is_floating_point()
    assert np.allclose(got.numpy(), expected, atol=1e-5)


def test_the_shape_is_that_of_the_numbers() -> None:
    z = spectrum()
    assert z.shape == z.size() == (3, 5) and z.ndim == z.dim() == 2 and z.numel() == 15 and len(z) == 3
    assert z.size(-1) == 5 and z.stride() == (5, 1) and ox.view_as_real(z).shape == (3, 5, 2)
    assert "(3, 5)" in str(z.reshape(3, 5).shape) and z.sum().shape == () and z.view(3, -1).shape == (3, 5)
    for wrong in ("z[0, 0, 0]", "z.sum(2)", "z.unsqueeze(4)", "z.transpose(0, 2)", "z.reshape(4, 4)"):
        with pytest.raises(ox.OxError):
            eval(wrong, {"z": z})


def test_a_tensor_of_two_columns_holds_real_numbers() -> None:
    x = X[:, :2]
    for name in ("fft", "fft2", "fftn", "ifft", "hfft"):
        assert np.allclose(getattr(fft, name)(ox.tensor(x)).numpy(), getattr(np.fft, name)(x), atol=1e-5)


def test_the_two_parts() -> None:
    z = spectrum()
    pairs = ox.view_as_real(z)
    assert type(pairs) is ox.Tensor and pairs.shape == (3, 5, 2) and pairs.array is z.array
    assert ox.view_as_real(pairs) is pairs and not pairs.is_complex()
    assert np.allclose(pairs.square().sum(-1).sqrt().numpy(), np.abs(Z), atol=1e-5)
    assert np.allclose(z.real.numpy(), Z.real, atol=1e-5) and np.allclose(ox.imag(z).numpy(), Z.imag, atol=1e-5)
    assert ox.real(pairs) is pairs and ox.view_as_complex(z) is z
    assert np.allclose(ox.view_as_complex(pairs).numpy(), Z, atol=1e-5)
    assert np.allclose(np.abs(z), np.abs(Z), atol=1e-5) and np.allclose(z.tolist(), Z, atol=1e-5)
    assert z[0, 0].item() == pytest.approx(Z[0, 0], abs=1e-5)
    with pytest.raises(ShapeError, match=r"\[\.\.\., 2\]"):
        ox.view_as_real(ox.ones(3))
    with pytest.raises(DTypeError, match="imag"):
        ox.imag(pairs)


def test_writes() -> None:
    z = spectrum()
    z[:, 3:] = 0
    z[0] = spectrum()[1]
    expected = Z.copy()
    expected[:, 3:] = 0
    expected[0] = Z[1]
    assert np.allclose(z.numpy(), expected, atol=1e-5)
    z += z
    assert np.allclose(z.numpy(), 2 * expected, atol=1e-5)
    ox.view_as_real(z)[0] = 7
    assert (z.array[0] == 7).all()
    assert not z.copy_(spectrum()).fill_(0).array.any()
    with pytest.raises(DTypeError):
        z[0] = 1.5


def test_gradients_go_through() -> None:
    x = ox.tensor(X, requires_grad=True)
    z = fft.fft(x, norm="ortho")
    ox.view_as_real(z[:, :] * 2).square().sum().backward()
    assert np.allclose(x.grad.numpy(), 8 * X, atol=1e-4)
    leaf = spectrum().requires_grad_()
    (leaf * 3.0).real.sum().backward()
    assert (leaf.grad.array[..., 0] == 3).all() and (leaf.grad.array[..., 1] == 0).all()
    z = fft.rfft(x)
    ox.view_as_real(z)[:, 1:] *= 0
    x.grad = None
    ox.view_as_real(z).sum().backward()
    assert np.allclose(x.grad.numpy(), 1, atol=1e-5)


@pytest.mark.parametrize("length", [8, 12])
def test_a_recording(length: int) -> None:
    def model(x: Any) -> Any:
        z = fft.rfft(x)
        return ox.view_as_real(z + z).square().sum(-1).sqrt(), z

    graph = record(model, {"x": ox.tensor(X)}, dims={"x": ["n", "length"]})
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString())
    other = np.random.default_rng(2).standard_normal((2, length)).astype(np.float32)
    modulus, pairs = session.run(None, {"x": other})
    assert np.allclose(modulus, 2 * np.abs(np.fft.rfft(other)), atol=1e-4)
    assert pairs.shape == (2, length // 2 + 1, 2)


def test_copies_stand_for_complex_numbers_too() -> None:
    z = spectrum()
    for other in (copy.deepcopy(z), copy.copy(z), pickle.loads(pickle.dumps(z))):
        assert other.is_complex() and np.allclose(other.numpy(), z.numpy())


def test_numbers_in_its_shape_are_complex() -> None:
    z = ox.fft.rfft(ox.ones(2, 4))
    for made, value in ((ox.zeros_like(z), 0), (ox.ones_like(z), 1), (ox.full_like(z, 7), 7), (z.new_full((2,), 3), 3)):
        assert made.is_complex()
        np.testing.assert_array_equal(made.numpy(), np.full(made.shape, value, np.complex64))
    assert not ox.zeros_like(z, dtype=ox.float32).is_complex()
    for function in (ox.randn_like, ox.rand_like):
        with pytest.raises(ox.errors.PairsError, match=function.__name__):
            function(z)
