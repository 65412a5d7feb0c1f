"""What all tests share: where random numbers begin, no limit of time for fuzzers, and skips where there is no GPU."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import forked
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from rows import name_rows, seed

from ox.core.operator import OPS
from ox.devices import machine
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.errors import DeviceError
from ox.kernels import Library, reason

# Unbuffered, `print` writes word by word, and the words of several ranks mix within a line.
os.environ.pop("PYTHONUNBUFFERED", None)
# Without bytecode files, each of the hundreds of processes that tests start compiles all of ox, for seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # pytest asks this, and would rewrite the assertions of 700 files each time
# No window is opened, whichever process draws.
os.environ["MPLBACKEND"] = "Agg"
# nohup, and a shell for what it starts in the background, ignore signals that tests send.
for _number, _handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)
# No file of a test outlives a power cut; to wait for the disk would be an eighth of the time of tests that train.
os.fsync = lambda _: None  # type: ignore[assignment]
# OpenVINO, which some tests import themselves, sends an event at its import unless this package cannot be imported.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]


# How long an example takes says how busy the machine is.
settings.register_profile("ox", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ox")


# Hypothesis also draws the constants of every local module, and reads 2,000 files for them in each worker. What it
# tests here are the parsers of the server.
providers.is_local_module_file = lambda path: "/serve/protocol/" in path or "/serve/transport/" in path


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collection makes millions of objects that stay: the garbage collector need not look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws from ox's generator follows from the run's seed and its own name, and not from what ran before.

    pytest-randomly does the same for `random` and NumPy."""
    seed(item.config, item.nodeid)
    frozen.wanted(item.path)


class Frozen:
    """gc.freeze() at each new file, for all that the tests before it left: several million objects at the end.

    Each `gc.collect()` would look at them, and `save_step` and a recording that fails make one. Where ox.compile
    records functions with closures it would have to unfreeze and collect at each, so its tests go without.
    """

    file: Path | None = None

    def wanted(self, file: Path) -> None:
        if file == self.file:
            return
        self.file = file
        if "compile" in file.as_posix():
            gc.unfreeze()
        else:
            gc.collect()
            gc.freeze()


frozen = Frozen()


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiled kernels, here and in processes that the test starts: ONNX Runtime and NumPy do the work."""
    monkeypatch.setenv("OX_KERNELS", "0")
    monkeypatch.setattr(compiled, "library", lambda: None)
    for op in OPS.values():
        monkeypatch.setattr(op, "_plans", {})


@pytest.fixture
def library() -> Iterator[Library]:
    """The compiled kernels of this process, or a skip where this machine cannot compile them; their number of threads
    is set back."""
    found = compiled.library()
    if found is None:
        pytest.skip(f"no compiled kernels: {reason()}")
    yield found
    found.set_threads(machine.threads())


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A folder by name, which all processes of pytest-xdist read; the first one that asks has it written."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root = root / "shared"
    root.mkdir(exist_ok=True)

    def get(name: str, write: Callable[[Path], object]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with open(root / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of one that failed
                folder.mkdir()
                write(folder)
                done.touch()
        return folder

    return get


@pytest.fixture(scope="module")
def forked_processes() -> Iterator[None]:
    """Processes of Python that tests of a module start are forked from one with ox imported (see tests/forked.py)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", forked.Popen)
        yield


@pytest.fixture
def real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In such a module: the processes of this test start as those of a user do."""
    monkeypatch.setattr(subprocess, "Popen", forked.subprocess_popen)


@pytest.fixture(autouse=True)
def own_path() -> Iterator[None]:
    """Reading a recipe puts its folder on `sys.path`: the next test, and processes that it starts, see none of it."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@cache
def no_gpu() -> str | None:
    """Why no test can run on a GPU here; None where it can."""
    from ox.devices import cuda

    try:
        cuda.cupy()
    except DeviceError as error:
        return error.one_line()
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    slow_after_the_first(items)
    name_rows(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_gpu() if marked else None
    on_stand_in = not {"host_cuda", "strict_numpy"}.isdisjoint(sys.modules)
    for item in marked:
        alone = item.get_closest_marker("stand_in")  # why a GPU does not show it
        if reason is not None or (alone is not None and not on_stand_in):
            item.add_marker(pytest.mark.skip(reason=reason or alone.args[0]))
    result = yield  # items are selected and shuffled
    compiler_first(items)
    return result


def compiler_first(items: list[pytest.Item]) -> None:
    """Each worker begins with its share of the tests of ox.compile, which looks at all objects of the process to find
    closures: their number trebles with the libraries that other tests import."""
    early, rest = [], []
    for item in items:
        (early if "/compiler/" in item.path.as_posix() else rest).append(item)
    items.clear()
    for left in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), 0, -1):  # xdist cuts the list like this
        size, first = (len(early) + len(rest)) // left, len(early) // left
        items += early[:first] + rest[: size - first]
        del early[:first], rest[: size - first]


def slow_after_the_first(items: list[pytest.Item]) -> None:
    """Of a test with the mark `slow_after(n)`, n samples stay in `make test`; the others are marked `slow`."""
    seen: Counter[tuple[object, str]] = Counter()
    for item in items:
        mark = item.get_closest_marker("slow_after")
        if mark is not None:
            key = item.path, getattr(item, "originalname", item.name)
            if seen[key] >= mark.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[key] += 1
