"""The digits' file in other runtimes, and the commands around it."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import ox
import ox_models.digits
from ox import tolerance
from ox.engines.openvino import core
from ox_cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one epoch."""
    path = tmp_path_factory.mktemp("digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert main(["train", "digits", "--epochs", "1", "--limit", "256"]) == 0
    return path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def file(here: Path) -> Path:
    assert main(["export", "model.onnx"]) == 0
    return here / "model.onnx"


def expected() -> tuple[np.ndarray, np.ndarray]:
    recipe, model = ox.train.restore()
    (images,) = recipe.examples(64)
    with ox.no_grad():
        return images, model(ox.from_numpy(images)).numpy()


def test_onnx_reference_agrees(file: Path) -> None:
    images, logits = expected()
    (got,) = ReferenceEvaluator(onnx.load(file)).run(None, {"image": images})
    assert tolerance.compare(got, logits).ok


def test_openvino_agrees(file: Path) -> None:
    pytest.importorskip("openvino")
    images, logits = expected()
    compiled = core().compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for rows in (1, 2, 64):
        got = np.array(compiled(images[:rows])[compiled.output(0)])
        assert tolerance.compare(got, logits[:rows]).ok


@pytest.mark.parametrize("opset", range(21, 27))
def test_every_opset_runs(here: Path, opset: int) -> None:
    assert main(["export", f"opset{opset}.onnx", "--opset", str(opset)]) == 0
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    session = ort.InferenceSession(f"opset{opset}.onnx", options, providers=["CPUExecutionProvider"])
    images, logits = expected()
    assert tolerance.compare(session.run(None, {"image": images})[0], logits).ok
    assert ox.export.inspect(f"opset{opset}.onnx").opset == opset


def test_export_speaks_as_in_the_tour(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "model.onnx"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"recorded LeNet from runs/digits-0001 at batch 2 and 3: \d+ nodes, "
        r"dims image \[batch, 1, 8, 8\] → logits \[batch, 10\]",
        lines[0],
    )
    number = r"\d\.\de-\d\d|0\.0e\+00"
    assert re.fullmatch(rf"verified on ONNX Runtime [\d.]+ \(cpu\)   batch 1   max \|Δ\| ({number})", lines[1])
    assert re.fullmatch(rf" +batch 2   max \|Δ\| ({number})", lines[2])
    assert re.fullmatch(rf" +batch 7   max \|Δ\| ({number})   \(allowed 1e-05 \+ 1e-04·max\|y\|\)", lines[3])
    assert len({line.index("batch ", 9 if i else 0) for i, line in enumerate(lines[1:4])}) == 1
    assert re.fullmatch(r"model\.onnx  \d+ kB · opset 21 · 3 golden samples, real · labels 0-9", lines[4])
    assert lines[5:] == ["next: ox serve model.onnx"]


@pytest.mark.parametrize(("asked", "count"), [("none", 0), ("synthetic", 3), ("auto", 3)])
def test_golden_samples_as_asked(here: Path, asked: str, count: int) -> None:
    assert main(["export", "model.onnx", "--golden", asked]) == 0
    assert ox.export.inspect("model.onnx").golden == count


def test_a_file_for_inference(file: Path) -> None:
    assert main(["export", "fast.onnx", "--optimize", "inference"]) == 0
    images, logits = expected()
    with ox.no_grad():
        assert tolerance.compare(ox.export.load("fast.onnx")(ox.from_numpy(images)).numpy(), logits).ok
    plain, fast = (onnx.load(path).graph for path in (file, "fast.onnx"))
    assert len(fast.node) <= len(plain.node)
    assert not any(node.op_type == "BatchNormalization" for node in fast.node)


NOISY = """def forward(self, image: ox.Tensor) -> ox.Tensor:
        image = image + 0.5 * ox.randn_like(image)"""


def test_a_model_that_draws(here: Path) -> None:
    recipe = Path("noisy.py")
    text = Path(inspect.getfile(ox_models.digits)).read_text()
    recipe.write_text(text.replace("def forward(self, image: ox.Tensor) -> ox.Tensor:", NOISY))
    assert recipe.read_text() != text
    assert main(["export", "m.onnx", "--recipe", "noisy.py"]) == 1
    for arguments, names in ((["--seed", "key"], ["image", "key"]), (["--own-seed"], ["image"])):
        assert main(["export", "m.onnx", "--recipe", "noisy.py", *arguments]) == 0
        assert [info.name for info in ox.export.inspect("m.onnx").inputs] == names
        assert main(["export", "m.onnx", "--train", *arguments]) == 2
    assert main(["export", "m.onnx", "--recipe", "noisy.py", "--own-seed", "--seed", "key"]) == 2


@pytest.mark.parametrize("named", ["runs/digits-0001", "digits-0001"])
def test_a_run_by_name(here: Path, named: str) -> None:
    assert main(["export", "named.onnx", "--run", named]) == 0
    assert ox.export.inspect("named.onnx").run == "digits-0001"


def test_errors_leave_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()
    for arguments in (["--run", "nobody"], ["--opset", "99"]):
        assert main(["export", "model.onnx", *arguments]) == 1
        assert "try" in capsys.readouterr().err
    assert main(["export", "none/model.onnx"]) == 1
    assert "no folder" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_inspect_shows_for_which_sizes_a_file_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.ones((4, 20, 4), np.float32)
    ox.export.save(
        lambda x: x * 2 if x.shape[1] > 16 and x.shape[1] > x.shape[0] else x,
        tmp_path / "m.onnx",
        rows,
        input_names=["x"],
        dims={"x": ["batch", "seq", 4]},
    )
    assert main(["inspect", str(tmp_path / "m.onnx")]) == 0
    assert re.search(r"^sizes +seq in 17\.\., seq > batch$", capsys.readouterr().out, re.MULTILINE)
    assert main(["inspect", str(tmp_path / "m.onnx"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sizes"] == "seq in 17.., seq > batch"


def test_inspect(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["inspect", "model.onnx"]) == 0
    text = capsys.readouterr().out
    for part in ("opset 21", "image FP32 [batch, 1, 8, 8]", "labels 0-9", "2 Conv", "3 samples", "digits-0001"):
        assert part in text
    assert main(["inspect", "model.onnx", "--json"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert summary["outputs"][0]["labels"] == list("0123456789") and summary["nodes"]["Conv"] == 2
    assert summary["size"] == file.stat().st_size
    (file.parent / "damaged.onnx").write_bytes(file.read_bytes()[:1000])
    for name in ("damaged.onnx", "gone.onnx"):
        assert main(["inspect", name]) == 1
        assert name in capsys.readouterr().err


def test_a_loaded_file_goes_on_training(file: Path) -> None:
    _, own = ox.train.restore()
    net = ox.export.load(file).eval()
    images, logits = expected()
    np.testing.assert_allclose(net(images).detach().numpy(), logits, atol=1e-4)
    assert {name for name, _ in net.named_parameters()} == {name for name, _ in own.named_parameters()}
    ox.export.save(net, "again.onnx", images)
    assert onnx.load("again.onnx").graph == onnx.load(file).graph
