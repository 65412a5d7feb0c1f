"""`ox.export.save(..., gradient=...)`: files that give gradients with respect to inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ox
from ox import nn, tolerance
from ox.errors import ArgumentError, ExportError, GradientError
from ox.graph.contract import Contract


class Energy(nn.Module):
    """The energy of points, each near each other one; its gradients are forces."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, places: Any, charge: Any) -> Any:
        apart = places.unsqueeze(1) - places.unsqueeze(2)
        distance = (apart.square().sum(-1, keepdim=True) + 1).sqrt()
        return self.layers(distance).sum((1, 2, 3)) * charge


def points(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((count, 5, 3)).astype(np.float32), random.random(count, dtype=np.float32)


def run(path: Path, **feed: np.ndarray) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def test_forces_are_gradients_of_an_energy(tmp_path: Path) -> None:
    ox.manual_seed(0)
    model = Energy()
    path = tmp_path / "energy.onnx"
    report = ox.export.save(model, path, points(12), output_names=["energy"], gradient="places")
    assert report.dims == "places [batch, 5, 3], charge [batch] → energy [batch], places.gradient [batch, 5, 3]"
    assert [row.batch for row in report.rows] == [1, 2, 7]
    assert all(p.grad is None and p.requires_grad for p in model.parameters())

    x, charge = points(9)
    tensor = ox.from_numpy(x).requires_grad_()
    energy = model(tensor, ox.from_numpy(charge))
    energy.sum().backward()
    got = run(path, places=x, charge=charge)
    assert tolerance.compare(got["energy"], energy.detach().numpy()).ok
    assert tolerance.compare(got["places.gradient"], tensor.grad.numpy()).ok
    # rows do not mix, so each row's gradient is that of its own energy
    alone = run(path, places=x[3:4], charge=charge[3:4])
    assert tolerance.compare(alone["places.gradient"], got["places.gradient"][3:4]).ok


def test_several_inputs_by_name(tmp_path: Path) -> None:
    """Golden samples and the contract hold the gradients as any output."""
    places, charge = points(12)
    report = ox.export.save(
        Energy(), tmp_path / "e.onnx", {"places": places, "charge": charge}, gradient=["charge", "places"]
    )
    outputs = ["output", "charge.gradient", "places.gradient"]
    assert [info.name for info in report.contract.outputs] == outputs
    assert report.metadata is not None
    golden = Contract.from_metadata(report.metadata).samples
    assert golden and list(golden[0].outputs) == outputs


def test_a_function_with_several_outputs(tmp_path: Path) -> None:
    """The first one counts."""

    def both(x: Any) -> dict[str, Any]:
        return {"square": x * x, "cube": x * x * x}

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
    ox.export.save(both, tmp_path / "f.onnx", x, gradient="x")
    got = run(tmp_path / "f.onnx", x=x)
    np.testing.assert_allclose(got["x.gradient"], 2 * x, rtol=1e-6)
    assert list(got) == ["square", "cube", "x.gradient"]


def test_refusals(tmp_path: Path) -> None:
    x = np.ones((6, 2), np.float32)
    with pytest.raises(ArgumentError, match="gradient names 'y', which is no input"):
        ox.export.save(nn.Linear(2, 2), tmp_path / "f.onnx", x, gradient="y")
    with pytest.raises(ArgumentError, match="no gradient with respect to 'input'"):
        ox.export.save(nn.Embedding(3, 2), tmp_path / "f.onnx", x.astype(np.int64), gradient="input")
    with pytest.raises((GradientError, ExportError)):
        ox.export.save(lambda x: x.detach() * 2, tmp_path / "f.onnx", x, gradient="x")
    assert not list(tmp_path.iterdir())
