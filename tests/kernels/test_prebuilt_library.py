"""The libraries of a wheel: the one that fits the processor is loaded, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import prebuilt_kernels
import pytest
from rows import rows

from ox.kernels import Library, compiler, prebuilt_library
from ox.kernels import library as kernel_library
from ox.kernels.prebuilt_library import DamagedError, PrebuiltError

SCRIPT = """
import json, sys
from pathlib import Path
from ox.kernels import compiler, prebuilt_library
prebuilt_library.FOLDER, prebuilt_library.CPUINFO = Path(sys.argv[1]), Path(sys.argv[2])
compiler.find_spec = lambda name: None
import ox
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.kernels import reason
from ox.train.run import config
value = float(ox.nn.functional.gelu(ox.linspace(-3, 3, 5000)).sum())
ox.nn.functional.gelu(ox.linspace(-3, 3, 5000))
found = compiled.library()
print(json.dumps({"value": value, "origin": found and found.origin, "reason": reason(),
                  "noted": config.versions(Path("/")).get("kernels")}))
"""
X86 = {level.name: level.needs for level in prebuilt_kernels.LEVELS["x86_64"]}


def write(folder: Path, libraries: dict[str, tuple[bytes, Any]], **others: Any) -> Path:
    """A folder as a wheel has it: contents and needed flags by level."""
    folder.mkdir()
    entries = []
    for level, (contents, needs) in libraries.items():
        (folder / f"{level}.so").write_bytes(contents)
        sha256 = hashlib.sha256(contents).hexdigest()
        entries.append({"level": level, "file": f"{level}.so", "sha256": sha256, "needs": list(needs)})
    index = {"machine": platform.machine(), "sources": compiler.sources_digest(), "compiler": "zig 9"}
    (folder / "index.json").write_text(json.dumps({**index, "libraries": entries, **others}))
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the name of each level in place of a library."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    made = write(tmp_path / "prebuilt", {name: (name.encode(), needs) for name, needs in X86.items()})
    monkeypatch.setattr(prebuilt_library, "FOLDER", made)
    return made


@pytest.fixture
def loadable(library: Library, tmp_path: Path) -> Path:
    """This machine's own library as if it came with a wheel, for processors that have the flag `fits`."""
    return write(tmp_path / "prebuilt", {"level": (Path(library.path).read_bytes(), ["fits"])})


def cpuinfo(folder: Path, *flags: str, word: str = "flags\t\t") -> Path:
    path = folder / "cpuinfo"
    path.write_text(f"processor\t: 0\n{word}: {' '.join(flags)}\n\nprocessor\t: 1\n")
    return path


def start(folder: Path, info: Path, **environment: str) -> subprocess.Popen[str]:
    """A process without any compiler, which would write what it compiles beside `info`."""
    own = {name: value for name, value in os.environ.items() if name not in ("OX_KERNELS", "CXX")}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), str(info)],
        env={**own, "PATH": "/nowhere", "OX_CACHE": str(info.parent / "cache"), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def result(process: subprocess.Popen[str]) -> tuple[dict[str, Any], list[str]]:
    """What it printed, and the warnings about kernels."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out)
    points = (-3 + 6 * i / 4999 for i in range(5000))
    assert answer["value"] == pytest.approx(sum(x * (1 + math.erf(x / 2**0.5)) / 2 for x in points), rel=1e-5)
    return answer, [line for line in err.splitlines() if "Warning" in line]


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (X86["x86-64-v4"], "x86-64-v4"),
        ((*X86["x86-64-v3"], "avx512f"), "x86-64-v3"),  # the first of these processors had only a part of AVX-512
        (X86["x86-64-v3"], "x86-64-v3"),
        ((*X86["x86-64-v2"], "avx"), "x86-64-v2"),
    ],
)
def test_the_processor_chooses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], level: str
) -> None:
    monkeypatch.setattr(prebuilt_library, "CPUINFO", cpuinfo(folder.parent, "other", *flags))
    found = prebuilt_library.prebuilt_library()
    assert (found.level, found.path) == (level, folder / f"{level}.so")
    assert found.key == f"{level}-{hashlib.sha256(level.encode()).hexdigest()[:16]}"


def test_an_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    (level,) = prebuilt_kernels.LEVELS["aarch64"]
    monkeypatch.setattr(prebuilt_library, "FOLDER", write(tmp_path / "made", {level.name: (b"x", level.needs)}))
    monkeypatch.setattr(prebuilt_library, "CPUINFO", cpuinfo(tmp_path, "fp", "asimd", word="Features\t"))
    assert prebuilt_library.prebuilt_library().level == "armv8-a"


def test_none_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for info in (cpuinfo(folder.parent, "sse", "sse2"), folder / "no such file"):
        monkeypatch.setattr(prebuilt_library, "CPUINFO", info)
        with pytest.raises(PrebuiltError, match="older than x86-64-v2") as caught:
            prebuilt_library.prebuilt_library()
        assert not isinstance(caught.value, DamagedError)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(PrebuiltError, match="are for x86_64"):
        prebuilt_library.prebuilt_library()


def test_a_checkout_has_none(folder: Path) -> None:
    shutil.rmtree(folder)
    with pytest.raises(PrebuiltError, match="contains no compiled library") as caught:
        prebuilt_library.prebuilt_library()
    assert not isinstance(caught.value, DamagedError)


@pytest.mark.parametrize(
    ("file", "contents", "message"),
    [
        ("x86-64-v4.so", b"x86-64-v", "SHA-256 is not the one"),
        ("x86-64-v4.so", None, "v4.so cannot be read: No such file"),
        ("index.json", b"", "index.json is damaged: JSONDecodeError"),
        ("index.json", b"[]", "index.json is damaged: TypeError"),
        ("index.json", b"{}", "index.json is damaged: KeyError"),
        ("index.json", b"\xff", "index.json cannot be read"),
    ],
)
def test_what_is_damaged_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, contents: bytes | None, message: str
) -> None:
    monkeypatch.setattr(prebuilt_library, "CPUINFO", cpuinfo(folder.parent, *X86["x86-64-v4"]))
    (folder / file).unlink()
    if contents is not None:
        (folder / file).write_bytes(contents)
    with pytest.raises(DamagedError, match=message):
        prebuilt_library.prebuilt_library()


def test_other_sources_than_those_beside_it(folder: Path) -> None:
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**index, "sources": "0" * 64}))
    with pytest.raises(DamagedError, match="from other sources"):
        prebuilt_library.prebuilt_library()


def test_it_needs_no_compiler_and_no_cache(loadable: Path, tmp_path: Path) -> None:
    """Two processes at once; nothing is written, neither beside the library nor into a cache."""
    before = sorted((path.name, path.stat().st_mtime_ns) for path in loadable.iterdir())
    info = cpuinfo(tmp_path, "fits")
    loadable.chmod(0o555)
    for answer, said in [result(each) for each in [start(loadable, info) for _ in range(2)]]:
        assert answer["origin"] == "prebuilt for level by zig 9" and answer["reason"] is None and not said
        sha256 = json.loads((loadable / "index.json").read_text())["libraries"][0]["sha256"]
        assert answer["noted"] == f"level-{sha256[:16]}"
    assert sorted((path.name, path.stat().st_mtime_ns) for path in loadable.iterdir()) == before
    assert not (tmp_path / "cache").exists()


def test_without_a_compiler_either_the_work_goes_on(loadable: Path, tmp_path: Path) -> None:
    answer, said = result(start(loadable, cpuinfo(tmp_path, "too old")))
    assert answer["origin"] is None and not said
    assert answer["reason"].startswith("this processor is older than level; no C++ compiler is installed")


@pytest.mark.parametrize("kind", ["damaged", "no library"])
def test_a_damaged_one_is_said_once_and_the_work_goes_on(loadable: Path, tmp_path: Path, kind: str) -> None:
    contents = (loadable / "level.so").read_bytes()[:-100]
    if kind == "damaged":
        (loadable / "level.so").write_bytes(contents)
    else:
        shutil.rmtree(loadable)
        write(loadable, {"level": (b"not an ELF file", ["fits"])})
    answer, said = result(start(loadable, cpuinfo(tmp_path, "fits")))
    words = "level.so is damaged: its SHA-256" if kind == "damaged" else "this installation does not load"
    assert answer["origin"] is None and len(said) == 1 and words in said[0]
    assert words in answer["reason"] and "no C++ compiler is installed" in answer["reason"]


def test_users_may_pass_over_it(loadable: Path, tmp_path: Path) -> None:
    info = cpuinfo(tmp_path, "fits")
    answer, said = result(start(loadable, info, OX_KERNELS="native"))
    assert answer["origin"] is None and answer["reason"].startswith("no C++ compiler is installed") and not said
    answer, said = result(start(loadable, info, OX_KERNELS="perhaps"))
    assert answer["origin"] == "prebuilt for level by zig 9"
    assert len(said) == 1 and "OX_KERNELS=perhaps means nothing: off is without them" in said[0]


@rows("value", ["0", "off", "False", "NO", " off ", "", "1", "on", "True", "YES", "Native"])
def test_users_may_switch_them_off_and_on(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    def none() -> Any:
        raise prebuilt_library.PrebuiltError("none was looked for")

    def compiled() -> Any:
        raise kernel_library.compiler.NoCompilerError("no compiler")

    monkeypatch.setenv("OX_KERNELS", value)
    monkeypatch.setattr(kernel_library, "_reason", [])
    monkeypatch.setattr(kernel_library, "prebuilt_library", none)
    monkeypatch.setattr(kernel_library.compiler, "library", compiled)
    assert kernel_library._found.__wrapped__() == (None, [])
    words = f"they are switched off by OX_KERNELS={value}", "none was looked for; no compiler", "no compiler"
    kind = 0 if value.strip().lower() in ("0", "off", "false", "no") else 2 if value == "Native" else 1
    assert kernel_library.reason() == words[kind]
