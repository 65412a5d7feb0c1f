"""The lists of CONTRIBUTING.md are true: the edits, applied to a copy of the repository as the page shows them, work
and pass the tests that look at every operator, layer, recipe, metric, endpoint, parameter and optimizer; without one of
its files an edit does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from contributing_page import ROOT, counts, edits

EDITS = edits()
COPIED = (
    "ox",
    "cli",
    "models",
    "tests",
    "scripts",
    "docs",
    "pyproject.toml",
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
)
NUMBERS = {"Two": 2, "Three": 3}

# What shows that each of them works, run in the copy, in a folder of its own.
PROOFS = {
    "operator": """
import numpy as np, onnxruntime, ox
from ox import nn, ops

class Cap(nn.Module):
    def forward(self, x):
        return ops.SoftCap(x, cap=2.0)

x = ox.tensor([[-9.0, 0.0, 9.0]], requires_grad=True)
ops.SoftCap(x, cap=2.0).sum().backward()
assert np.allclose(x.grad.numpy(), 1 - np.tanh(x.detach().numpy() / 2) ** 2, atol=1e-6)
ox.export.save(Cap(), "cap.onnx", ox.randn(2, 3))
session = onnxruntime.InferenceSession("cap.onnx")
(got,) = session.run(None, {session.get_inputs()[0].name: np.float32([[-9, 0, 9]])})
assert np.allclose(got, 2 * np.tanh(np.float32([[-4.5, 0, 4.5]])), atol=1e-6)
""",
    "layer": """
import ox
from ox import nn

model = nn.Sequential(nn.Maxout(4, 8), nn.Maxout(8, 2, pieces=3))
assert set(model.state_dict()) == {f"{i}.linear.{name}" for i in (0, 1) for name in ("weight", "bias")}
ox.export.save(model, "maxout.onnx", ox.randn(2, 4))
x = ox.randn(5, 4)
with ox.no_grad():
    assert ox.allclose(ox.export.load("maxout.onnx")(x), model(x), atol=1e-5)
""",
    "recipe": """
import json
from pathlib import Path
from ox_cli.main import main

assert main(["train", "moons"]) == 0
(folder,) = Path("runs").iterdir()
assert json.loads((folder / "result.json").read_text())["held_back"]["accuracy"] >= 0.97
""",
    "metric": """
import json
from pathlib import Path
from ox_cli.main import main

page = (Path(__import__("ox_models").__file__).parent / "tumours.py").read_text()
Path("page.py").write_text(page.replace('metrics = ["f1", ', 'metrics = ["balanced_accuracy", "f1", '))
assert main(["train", "page.py", "--epochs", "1"]) == 0
(folder,) = Path("runs").iterdir()
assert 0 < json.loads((folder / "result.json").read_text())["held_back"]["balanced_accuracy"] <= 1
""",
    "endpoint": """
import json, urllib.request
import ox
from ox import nn, serve
from ox.serve.protocol.rest.admission import permission_of

ox.export.save(nn.Linear(4, 3), "m.onnx", ox.randn(2, 4))
with serve.Server(["m.onnx"]) as server:
    ask = lambda path: json.load(urllib.request.urlopen(server.url + path))
    output = ask("/v2/models/m")["outputs"][0]["name"]
    assert ask("/v2/models/m/labels") == ask("/v2/models/m/versions/1/labels") == {output: None}
    assert ask("/openapi.json")["paths"]["/v2/models/{model}/labels"]["get"]["summary"]
assert tuple(permission_of(b"GET", b"/v2/models/m/labels")) == ("read", "m")
""",
    "parameter": """
from types import SimpleNamespace
from ox.serve.protocol.openai.completions import read_completion
from ox.serve.protocol.text.fields import Fields
from ox.serve.protocol.text.parameters import schemas_in

engine = SimpleNamespace(vocab_size=9, context_length=99, tokenizer=None)
call = read_completion(Fields({"prompt": [1], "n_predict": 7}), SimpleNamespace(engine=engine, defaults={}))
assert call.requests("")[0].max_tokens == 7 and not call.options.remarks.unknown
assert schemas_in("completions")["n_predict"]["minimum"] == 0 and "n_predict" not in schemas_in("chat")
""",
    "optimizer": """
import numpy as np
import ox
from ox import nn, train

points = ox.randn(64, 2)
sides = (points[:, 0] > points[:, 1]).long()

def run(folder, epochs, **options):
    ox.manual_seed(0)
    network = nn.Linear(2, 2)
    optimizer = ox.optim.Signum(network.parameters(), lr=0.01)
    trainer = train.Trainer(network, nn.CrossEntropyLoss(), optimizer, (points, sides), epochs=epochs)
    result = trainer.fit(folder, **options)
    return network.weight.detach().numpy(), result

whole, result = run("whole", 4)
run("parts", 2)
resumed, _ = run("parts", 4, resume=True)
assert np.array_equal(whole, resumed)
network = nn.Linear(2, 2)
before = network.weight.detach().numpy().copy()
optimizer = ox.optim.Signum(network.parameters(), lr=0.5)
network(points).square().mean().backward()
optimizer.step()
assert np.allclose(np.abs(network.weight.detach().numpy() - before), 0.5)
""",
}
# The tests that find it by themselves: folders and files that are there without it, and the word that selects.
GENERATED = {
    "operator": (["tests/ops/test_functions.py", "tests/ops/test_facts.py"], "SoftCap or has_the_fact"),
    "layer": (["tests/nn/layers", "tests/test_completeness.py"], "axout"),
    "recipe": (["tests/models", "tests/test_completeness.py"], "moons"),
    "metric": (["tests/train/metrics", "tests/test_completeness.py"], "balanced_accuracy or BalancedAccuracy"),
    "endpoint": (
        ["tests/serve/protocol/rest/test_routes.py", "tests/serve/protocol/rest/test_route_replies.py"],
        "((routes or route_replies) and labels) or every_route",
    ),
    "parameter": (
        ["tests/serve/protocol/text/test_parameters.py", "tests/test_openai_tables.py"],
        "n_predict or known_where or openapi or page_is_current",
    ),
    "optimizer": (
        ["tests/optim/test_kernels.py", "tests/optim/test_recorded.py", "tests/test_completeness.py"],
        "Signum",
    ),
}
# What looks at the whole repository.
WHOLE = [
    "tests/test_walls.py", "tests/test_shadowed_modules.py", "tests/test_public_paths.py", "tests/test_from_pytorch.py",
    "tests/test_completeness.py", "tests/test_architecture.py", "tests/amp/test_policy.py",
    "tests/ops/test_facts.py", "tests/ops/test_schema.py",
    "tests/ops/test_table.py", "tests/models/test_readme.py",
    "tests/serve/protocol/rest/test_routes.py", "tests/serve/protocol/rest/test_openapi.py", "tests/test_errors.py",
]  # fmt: skip
LEFT_OUT = [(name, change.path) for name, changes in EDITS.items() for change in changes]


def test_the_page_has_the_seven_edits() -> None:
    assert set(EDITS) == set(PROOFS) == set(GENERATED)
    assert {name: NUMBERS[count] for name, count in counts().items()} == {name: len(c) for name, c in EDITS.items()}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository without its history; bytecode comes along, so that processes start at once."""
    folder = tmp_path_factory.mktemp("contributing") / "repository"
    folder.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture
def copy(original: Path) -> Iterator[Path]:
    """The copy, which is as it was when a test ends."""
    changed = {original / change.path for changes in EDITS.values() for change in changes}
    before = {path: path.read_text() if path.exists() else None for path in changed}
    yield original
    for path, text in before.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)


def apply_edits(copy: Path, names: Iterable[str], without: str = "") -> None:
    for change in [change for name in names for change in EDITS[name] if change.path != without]:
        change.apply(copy)


def run(copy: Path, *words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python in the copy; without the network, as every test."""
    path = os.pathsep.join(map(str, (copy, copy / "cli", copy / "models")))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, cwd=cwd or copy, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def prove(copy: Path, folder: Path, names: Iterable[str]) -> subprocess.CompletedProcess[str]:
    lines = ["import os, pathlib, ox", f"assert pathlib.Path(ox.__file__).is_relative_to({str(copy)!r})"]
    for name in names:
        (folder / name).mkdir()
        lines += [
            f"os.chdir({str(folder / name)!r})",
            f"exec(compile({PROOFS[name]!r}, 'the proof of {name}', 'exec'), {{}})",
        ]
    return run(copy, "-c", "\n".join(lines), cwd=folder)


def generated(copy: Path, names: Iterable[str]) -> subprocess.CompletedProcess[str]:
    paths = dict.fromkeys(path for name in names for path in GENERATED[name][0])
    words = " or ".join(GENERATED[name][1] for name in names)
    return run(copy, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *paths, "-k", words)


def test_edits_work(copy: Path, tmp_path: Path) -> None:
    """In one process, since its start takes longer than what is checked."""
    apply_edits(copy, EDITS)
    done = prove(copy, tmp_path, EDITS)
    assert done.returncode == 0, done.stdout + done.stderr


FAST = [name for name in EDITS if name != "recipe"]


@pytest.mark.parametrize("names", [FAST, pytest.param(["recipe"], marks=pytest.mark.slow)], ids=["others", "recipe"])
def test_generated_tests_find_them(names: list[str], copy: Path) -> None:
    apply_edits(copy, names)
    done = generated(copy, names)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_code_is_formatted(copy: Path) -> None:
    pytest.importorskip("ruff", reason="ruff is not installed")
    apply_edits(copy, EDITS)
    files = {change.path for changes in EDITS.values() for change in changes if change.path.endswith(".py")}
    for command in (["check"], ["format", "--check"]):
        done = run(copy, "-m", "ruff", *command, "--no-cache", *files)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "path"), LEFT_OUT)
def test_no_file_can_be_left_out(name: str, path: str, copy: Path, tmp_path: Path) -> None:
    apply_edits(copy, [name], without=path)
    proves = path.startswith(("ox/", "models/ox_models/"))  # no proof looks at tests and pages
    proven = not proves or prove(copy, tmp_path, [name]).returncode == 0
    assert not proven or generated(copy, [name]).returncode, f"all passes without {path}: it need not be listed"


@pytest.mark.slow
def test_no_other_file_is_needed(copy: Path) -> None:
    """All seven at once: what looks at the whole repository asks for no file that the page does not name."""
    apply_edits(copy, EDITS)
    words = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-k", "not old_form"]  # of ONNX's own operators
    done = run(copy, "-m", "pytest", *words, *WHOLE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_types_are_right(copy: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    apply_edits(copy, EDITS)
    if (cache := ROOT / ".mypy_cache").is_dir():  # of `make types`: what the edits do not change is not read again
        shutil.copytree(cache, copy / cache.name, dirs_exist_ok=True)
    done = run(copy, "-m", "mypy")
    assert done.returncode == 0, done.stdout + done.stderr
