"""OX_CUDA_FLUSH_DENORMALS: with which option CuPy's kernels and ox's are compiled, and what they compute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ox.devices.gpu.denormals import SWITCH, follow_switch
from ox.errors import ArgumentError, DeviceError

PROGRAM = """
import sys
if "host_cuda" in sys.argv:
    import host_cuda; host_cuda.install()
import numpy as np
import ox
from cupy.cuda import compiler
options = {}
compile_ = compiler._compile_using_nvrtc_no_warning
def noting(source, given, *more):
    options.setdefault("ox" if "ox_silu" in source else "CuPy", set()).update(x for x in given if "ftz" in x)
    return compile_(source, given, *more)
compiler._compile_using_nvrtc_no_warning = noting
small = ox.tensor(np.array([1e-40, 1.0], np.float32)).cuda()
by_cupy, by_ox = small * 1.0, ox.nn.functional.silu(small)
print("kept" if by_cupy.cpu().numpy()[0] else "flushed", "kept" if by_ox.cpu().numpy()[0] else "flushed")
print(dict(sorted(options.items())))
"""


@pytest.mark.gpu
@pytest.mark.parametrize(("value", "option"), [(None, "-ftz=true"), ("0", "-ftz=false")])
def test_the_kernels(value: str | None, option: str, tmp_path: Path) -> None:
    stand_in = "host_cuda" in sys.modules
    if not stand_in and "strict_numpy" in sys.modules:
        pytest.skip("the stand-in has no kernels")
    environment = {name: text for name, text in os.environ.items() if name != SWITCH}
    environment["CUPY_CACHE_DIR"] = str(tmp_path)  # so that all is compiled
    environment |= {} if value is None else {SWITCH: value}
    words = [sys.executable, "-c", PROGRAM, *(["host_cuda"] if stand_in else [])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    numbers, options = done.stdout.splitlines()
    assert options == str({"CuPy": {option}, "ox": {option}})
    # g++ has no such option
    assert numbers == ("kept kept" if stand_in or option == "-ftz=false" else "flushed flushed")


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SimpleNamespace(cuda=SimpleNamespace(compiler=SimpleNamespace()), __version__="99.0")
    monkeypatch.setenv(SWITCH, "no")
    with pytest.raises(ArgumentError, match=r"(?s)OX_CUDA_FLUSH_DENORMALS is a switch.*0 or 1.*'no'"):
        follow_switch(other)
    monkeypatch.setenv(SWITCH, "0")
    with pytest.raises(DeviceError, match=r"(?s)needs another CuPy.*CuPy 99.0"):
        follow_switch(other)
    monkeypatch.setenv(SWITCH, "1")
    follow_switch(other)
