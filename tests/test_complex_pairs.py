"""Tensors that stand for complex numbers: what they take, what they refuse, gradients, recordings, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import onnxruntime
import pytest

import ox
from ox import fft
from ox.errors import DTypeError, ShapeError
from ox.graph.record import record
from ox.graph.write import to_model
from ox.nn import functional as F

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
Z = np.fft.rfft(X)

REFUSED = """
z.abs(); ox.abs(z); abs(z); z.angle(); ox.angle(z); z * z; ox.mul(z, z); z.mul(z); z * ox.ones(5); z * ox.ones(3, 5, 1)
ox.ones(3, 5, 1) * z; z / z; 1 / z; z + 1; 1 + z; z - 1.0; z ** 2; z.square(); z.sqrt(); z.exp(); ox.log(z); z @ z
ox.einsum("ijk,ijk->i", z, z); z.norm(dim=-1); z.sum(); z.sum(-1); z.mean(2); z[..., 0]; z[..., :2]; z[:, :, 0]
z.reshape(-1); z.view(3, -1); z.transpose(-1, -2); z.permute(2, 0, 1); z.T; ox.cat([z, z]); ox.stack([z, z])
z.float(); z.to(ox.float64); z.type(ox.float64); z == z; z > 0; z.isreal(); z.max(); z.std(); z.fill_(1); z.mul_(z)
z.copy_(ox.ones(3, 5, 2)); F.mse_loss(z, z); F.relu(z); ox.where(ox.ones(3, 5, 2) > 0, z, z); z.add_(1); z.matmul(z)
"""


def parts(text: str) -> list[str]:
    return [p.strip() for line in text.strip().splitlines() for p in line.split("; ")]


def spectrum() -> Any:
    return fft.rfft(ox.tensor(X))


@pytest.mark.parametrize("expression", parts(REFUSED))
def test_what_means_another_thing_is_refused(expression: str) -> None:
    with pytest.raises(DTypeError, match=r"complex numbers(?s:.)*ox\.view_as_real"):
        eval(expression, {"z": spectrum(), "ox": ox, "F": F})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("z + z - 2 * z / 4", 1.5 * Z), ("-z", -Z), ("z * ox.tensor(3.0)", 3 * Z), ("z.conj()", Z.conj()),
        ("ox.conj(z)", Z.conj()), ("z[0]", Z[0]), ("z[:, 1:3]", Z[:, 1:3]), ("z[:, 2, None]", Z[:, 2, None]),
        ("z[z.real > 0]", Z[Z.real > 0]), ("z[1, ...]", Z[1]), ("z.mean(0)", Z.mean(0)), ("z.sum(dim=1)", Z.sum(1)),
        ("z.transpose(0, 1)", Z.T), ("z.unsqueeze(2)", Z[:, :, None]), ("z.split(2)[1]", Z[2:]), ("z.clone()", Z),
        ("z.roll(1, 1)", np.roll(Z, 1, 1)), ("fft.fftshift(z)", np.fft.fftshift(Z)), ("z.detach().contiguous()", Z),
        ("fft.fftshift(z, -1)", np.fft.fftshift(Z, -1)), ("z.cpu()", Z), ("next(iter(z))", Z[0]),
    ],
)  # fmt: skip
def test_what_is_the_same_stays(expression: str, expected: Any) -> None:
    got = eval(expression, {"z": spectrum(), "ox": ox, "fft": fft})
    assert got.is_complex() and ox.is_complex(got) and not got.is_floating_point()
    assert np.allclose(got.numpy(), expected, atol=1e-5)


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
