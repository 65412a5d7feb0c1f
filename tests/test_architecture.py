"""ARCHITECTURE.md and the docstrings of packages are true: the tree, the floors, the walks, the imports."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from rows import rows
from walls import FLOORS, GROUND, Import, all_imports, module_of, reason, room

import ox
from ox import nn

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
PACKAGES = {
    folder: name
    for top in (ROOT / "ox", ROOT / "cli" / "ox_cli", ROOT / "models" / "ox_models")
    for folder in [top, *sorted(each for each in top.rglob("*") if each.is_dir())]
    if any(folder.glob("*.py"))
    for name in [".".join(folder.relative_to(top.parent).parts)]
}


# ---- the tree and its floors


def section(title: str, level: int = 2) -> str:
    """The text below a heading of the page."""
    mark = "#" * level
    found = re.search(rf"^{mark} {re.escape(title)}\n(.*?)(?=^#{{1,{level}}} |\Z)", PAGE.read_text(), re.S | re.M)
    assert found is not None, f"ARCHITECTURE.md has no section '{title}'"
    return found[1]


def table() -> list[list[str]]:
    """The cells of the table of packages: names, floor, contents."""
    lines = re.findall(r"^\| (`.*) \|$", section("The tree and its floors"), re.M)
    return [line.split(" | ") for line in lines]


def test_the_floors_are_those_of_the_walls() -> None:
    """tests/test_walls.py enforces FLOORS."""
    said = {name: int(floor) for names, floor, _ in table() for name in re.findall(r"`([\w.]+)`", names)}
    floors = {name: floor for name, floor in FLOORS.items() if name != "ox.ground"}
    floors |= {f"ox.{name}": FLOORS["ox.ground"] for name in GROUND}
    wrong = {
        name: (said.get(name), floors.get(name)) for name in {*said, *floors} if said.get(name) != floors.get(name)
    }
    assert not wrong, f"the table of ARCHITECTURE.md, and FLOORS: {wrong}"


def is_module(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).with_suffix(".py").exists()


def test_every_floor_is_one_of_something() -> None:
    names = {*FLOORS, *(f"ox.{name}" for name in GROUND)} - {"ox.ground", "ox_cli", "ox_models"}
    there = {f"ox.{path.stem}" for path in (ROOT / "ox").iterdir() if path.suffix == ".py" or path in PACKAGES}
    assert names == there - {"ox.__init__"}


@rows("cells", table(), ids=lambda cells: cells[0].strip("`").split("`")[0])
def test_a_row_names_the_folders_of_its_package(cells: list[str]) -> None:
    names = [name for name in re.findall(r"`([\w.]+)`", cells[0]) if not is_module(name)]
    folders = {"ox_cli": ROOT / "cli" / "ox_cli", "ox_models": ROOT / "models" / "ox_models"}
    said = set(re.findall(r"`(\w+)/`", cells[2]))
    found = {
        folder.name
        for name in names
        for folder in folders.get(name, ROOT / name.replace(".", "/")).iterdir()
        if folder in PACKAGES
    }
    assert said == found, f"the row of {cells[0]} should name the folders {sorted(found)}"


# ---- the walks


def steps(title: str) -> list[tuple[str, str]]:
    """The files and functions that a walk names, in order: ``1. `ox/core/operator.py` `Operator.__call__`, ...``."""
    found = []
    for line in re.findall(r"^\d+\. (.*?):", section(title, 3), re.M):
        file, *names = re.findall(r"`([^`]+)`", line)
        found += [(file, name) for name in names]
    assert found, f"the walk '{title}' names no functions"
    return found


class Walk:
    """Follows calls until all steps of a walk were called, in order; in this thread and in those that begin inside."""

    def __init__(self, walk: list[tuple[str, str]]) -> None:
        top = str(Path(ox.__file__).parents[1]) + "/"
        self.walk = [(top + file, name) for file, name in walk]
        self.called: set[tuple[str, str]] = set()
        self.place = 0

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if self.place == len(self.walk):
            sys.setprofile(None)  # of this thread; the rest of the work is as quick as usual
        elif event == "call" and (key := (frame.f_code.co_filename, frame.f_code.co_qualname)) in self.walk:
            self.called.add(key)
            if key == self.walk[self.place]:
                self.place += 1

    def __enter__(self) -> Walk:
        self.before = sys.getprofile()
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self.before)
        threading.setprofile(None)  # type: ignore[arg-type]  # how it is switched off


def check(title: str, work: Callable[[], object]) -> None:
    """`work` calls what the walk names, in its order; other calls may come between."""
    with Walk(steps(title)) as walk:
        work()
    if walk.place < len(walk.walk):
        missing = walk.walk[walk.place]
        why = "is called before the steps above it, and not after" if missing in walk.called else "is not called"
        raise AssertionError(f"{title}: {missing[1]} of {missing[0]} {why}")


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def test_the_walk_of_a_tensor() -> None:
    x, w = ox.randn(3, 4), ox.randn(4, 2, requires_grad=True)

    def work() -> None:
        (x @ w).tanh().sum().backward()

    work()
    check("A tensor, forward and backward", work)


def test_the_walk_of_a_training_step(tmp_path: Path) -> None:
    page = tmp_path / "tiny.py"
    page.write_text(
        "import ox\nfrom ox import nn\nfrom ox.data import TensorDataset\n"
        "defaults = {'epochs': 1, 'batch_size': 4}\nloss = nn.MSELoss()\n"
        "def data():\n    part = TensorDataset(ox.randn(8, 3), ox.randn(8, 2))\n    return part, part, part\n"
        "def model():\n    return nn.Linear(3, 2)\n"
    )
    recipe = ox.train.load(str(page))
    check("A training step", lambda: ox.train.train(recipe, out=tmp_path / "run"))


def test_the_walk_of_an_export(tmp_path: Path) -> None:
    check("An export", lambda: ox.export.save(model(), tmp_path / "model.onnx", ox.randn(3, 4)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ox.export.save(model(), tmp_path / "model.onnx", ox.randn(3, 4))
    return tmp_path / "model.onnx"


def test_the_walk_of_a_model_load(file: Path) -> None:
    def work() -> None:
        with ox.serve.Server([file], port=0):
            pass

    check("A model load", work)


def test_the_walk_of_a_request(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The walk is that of a quick model without buffers, whatever a busy machine measures.
    monkeypatch.setattr("ox.serve.repository.model.HANDOFF_S", 60.0)
    monkeypatch.setattr("ox.serve.tuning.measure._binding_is_faster", lambda *_: False)
    body = '{"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}'

    def work() -> None:
        with ox.serve.Server([file], port=0) as server:
            client = HTTPConnection("127.0.0.1", server.port)
            client.request("POST", "/v2/models/model/infer", body)
            assert client.getresponse().status == 200
            client.close()

    check("An HTTP request", work)


# ---- the docstrings of packages

# Users read these in help(): PyTorch's and torchvision's paths, and those of docs/. They may be longer, and need no
# sentence about imports; that of each package of the table stands in ARCHITECTURE.md.
READ_IN_HELP = set(
    re.findall(
        r"\S+",
        """
        ox ox.amp ox.autograd ox.backends ox.bench ox.core.mt19937 ox.compat.cpu ox.cuda ox.data ox.data.datasets
        ox.data.transforms ox.distributed ox.distributed.algorithms ox.distributed.algorithms.ddp_comm_hooks
        ox.distributed.optim ox.distributions ox.einops ox.export ox.func ox.linalg ox.nn
        ox.ray ox.nn.functional ox.nn.modules ox.nn.parallel ox.nn.utils ox.ops ox.optim
        ox.optim.lr_scheduler ox.porting ox.profiler ox.serialization ox.serialization.torch_checkpoint
        ox.serve ox.signal ox.sparse ox.train ox.train.loggers ox.train.metrics ox.train.report ox.utils
        ox.utils.benchmark ox.utils.data ox.vision ox.vision.datasets ox.vision.models ox.vision.transforms
        ox.vision.transforms.v2
        """,
    )
)


def docstring(folder: Path) -> str:
    init = folder / "__init__.py"
    assert init.exists(), f"{folder.relative_to(ROOT)} has no __init__.py"
    return ast.get_docstring(ast.parse(init.read_text())) or ""


@rows("folder", PACKAGES, ids=PACKAGES.get)
def test_a_package_says_what_lives_there(folder: Path) -> None:
    text, name = docstring(folder), PACKAGES[folder]
    assert re.match(r".*\w{3}", text), f"{name}/__init__.py begins with a docstring: what lives here"
    if name not in READ_IN_HELP:
        assert len(text.splitlines()) <= 3, f"the docstring of {name} has at most three lines"
        assert claims(text), f"the docstring of {name} says what it imports, or who imports it"


def test_the_list_of_packages_read_in_help_is_current() -> None:
    assert not READ_IN_HELP - set(PACKAGES.values())


NAMES = r"\box(?:_\w+)?(?:\.\w+)+|\box_\w+"
LISTED = r"[\w.]+(?:(?:,| and| or) [\w.]+)*"
CLAIMS = {
    "only": rf"Imports ({LISTED}) only",
    "below": rf"Imports (?:({LISTED}) and )?floors below(?:,.*)?",
    "annotations": rf"({LISTED}) for annotations",
    "nothing": rf"(?:.* imports )?nothing of ({LISTED})",
    "by": rf"[Ii]mported by ({LISTED}) only",
}


def inside(name: str, packages: list[str]) -> bool:
    return any(name == each or name.startswith(each + ".") for each in packages)


def claims(text: str) -> list[tuple[str, str, list[str]]]:
    """What a docstring says of imports, by clause: the kind, the clause, and the packages that it names."""
    found = []
    for clause in re.split(r"[.:;](?:\s|$)", " ".join(text.split())):
        said = [(kind, match[1] or "") for kind, form in CLAIMS.items() if (match := re.fullmatch(form, clause))]
        found += [(kind, clause, re.findall(NAMES, names)) for kind, names in said]
        known = said or not re.match(r"[Ii]mport(s|ed by)\b|.*(\bnothing of|floors below|for annotations)\b", clause)
        assert known, f"no test knows the form of '{clause}'"
    return found


@cache
def ours() -> list[tuple[str, Import]]:
    """Imports of our own modules, each with the module that it stands in."""
    return [(module_of(path), each) for path, each in all_imports(types=True) if room(each.module) is not None]


def is_below(here: str, each: Import) -> bool:
    """Whether an import of module `here` goes to a lower floor, or stands on a list of tests/test_walls.py."""
    there = room(each.module)
    return there == "ox" or FLOORS[str(there)] < FLOORS[str(room(here))] or reason(here, each) is not None


@rows("folder", PACKAGES, ids=PACKAGES.get)
def test_what_a_docstring_says_of_imports_is_true(folder: Path) -> None:
    """Modules of floor 0 count only where the docstring names one of them."""
    said = claims(docstring(folder))
    for_types = [name for kind, _, names in said if kind == "annotations" for name in names]
    for kind, clause, names in said:
        before = clause.partition("nothing of")[0] if kind == "nothing" else ""
        subject = re.findall(NAMES, before) or [PACKAGES[folder]]
        out = [(here, each) for here, each in ours() if inside(here, subject) and not inside(each.module, subject)]
        if kind == "by":
            importers = {here for here, each in ours() if inside(each.module, subject)}
            wrong = {here for here in importers if not inside(here, subject + names)}
        elif kind == "nothing":
            assert names, f"'{clause}' names no package"
            wrong = {each.module for _, each in out if inside(each.module, names)}
        elif kind == "annotations":
            wrong = {name for name in names if not any(each.types and inside(each.module, [name]) for _, each in out)}
        else:
            ground = any(room(name) == "ox.ground" for name in names)
            wrong = {
                each.module
                for here, each in out
                if not inside(each.module, names)
                and not (each.types and inside(each.module, for_types))
                and not (room(each.module) == "ox.ground" and not ground)
                and not (kind == "below" and is_below(here, each))
            }
        assert not wrong, f"{PACKAGES[folder]} says '{clause}', but see {sorted(wrong)}"
