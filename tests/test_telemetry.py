"""Usage data that dependencies would collect and send by default: ox switches it off, in helper processes too."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ox.kernels.compiler import CompilerError, find_compiler

# In a job of CI OpenVINO's package sends nothing
SILENCING = ("ORT_DISABLE_TELEMETRY", "CI", "TF_BUILD", "JENKINS_URL")
SESSION = """
import sys
import numpy as np
import ox
from ox import nn
ox.export.save(nn.Linear(3, 2), "linear.onnx", np.ones((2, 3), np.float32))
with ox.serve.Server(["linear.onnx"]):
    pass
"""
# Stands for the system's resolver: writes the names that are looked up into the named pipe $LOOKUPS, and knows none.
RESOLVER = """
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern "C" int getaddrinfo(const char *node, const char *, const struct addrinfo *, struct addrinfo **) {
    int pipe = open(getenv("LOOKUPS"), O_WRONLY);
    if (node && write(pipe, node, strlen(node)) < 0) abort();
    close(pipe);
    return EAI_FAIL;
}
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    home.mkdir()
    variables = {name: text for name, text in os.environ.items() if name not in SILENCING}
    return variables | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")} | more


def device_ids(home: Path) -> list[Path]:
    """The files in which ONNX Runtime keeps the identity of a machine."""
    return [path for path in home.rglob("*") if "microsoft" in str(path.relative_to(home)).lower()]


@pytest.mark.parametrize(("given", "then"), [(None, "1"), ("", "1"), ("1", "1"), ("true", "1"), ("0", "0")])
def test_only_0_is_consent(tmp_path: Path, given: str | None, then: str) -> None:
    """Compose and env files set a variable without a value to nothing. ONNX Runtime is not imported here."""
    variables = environment(tmp_path / "home", **({} if given is None else {"ORT_DISABLE_TELEMETRY": given}))
    script = "import os, sys, ox; print(os.environ['ORT_DISABLE_TELEMETRY'], 'onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env=variables, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [then, "False"]


def test_no_file_of_onnx_runtime(tmp_path: Path) -> None:
    """Of a process that exports, proves and serves, and of those that it starts."""
    variables = environment(tmp_path / "home", OX_KERNELS="off")
    subprocess.run([sys.executable, "-c", SESSION], cwd=tmp_path, env=variables, check=True)
    assert not device_ids(tmp_path / "home")


def test_users_who_want_to_send_it(tmp_path: Path) -> None:
    """The check above can fail."""
    variables = environment(tmp_path / "home", ORT_DISABLE_TELEMETRY="0")
    script = "import ox, onnxruntime; print(onnxruntime.__version__)"
    done = subprocess.run([sys.executable, "-c", script], env=variables, check=True, capture_output=True, text=True)
    if sys.platform != "linux" or tuple(map(int, done.stdout.split(".")[:2])) < (1, 29):
        pytest.skip("this ONNX Runtime collects nothing")
    assert device_ids(tmp_path / "home")


@pytest.fixture
def resolver(tmp_path: Path) -> Path:
    """A library for LD_PRELOAD that stands for the system's resolver."""
    if sys.platform != "linux":
        pytest.skip("LD_PRELOAD is Linux's")
    try:
        compiler = find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))
    source, library = tmp_path / "resolver.cpp", tmp_path / "resolver.so"
    source.write_text(RESOLVER)
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def start(script: str, home: Path, resolver: Path, **more: str) -> tuple[Any, int]:
    """A process that has run `script` and waits, and a pipe with the names that it and its children look up."""
    fifo = home.with_suffix(".lookups")
    os.mkfifo(fifo)
    lookups = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(
        [sys.executable, "-c", f"{script}; import signal; print('ready', flush=True); signal.pause()"],
        env=environment(home, LD_PRELOAD=str(resolver), LOOKUPS=str(fifo), **more),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process, lookups


def compare(silent: str, sends: str, tmp_path: Path, resolver: Path, **more: str) -> None:
    """Of two scripts the second looks up a host; by then the first, which was started before, has looked up none."""
    processes = [start(silent, tmp_path / "silent", resolver), start(sends, tmp_path / "sends", resolver, **more)]
    try:
        if not select.select([processes[1][1]], [], [], 120)[0]:
            pytest.skip("this version looks up no host")
        assert not select.select([processes[0][1]], [], [], 0)[0]
    finally:
        for process, pipe in processes:
            process.kill()
            process.communicate()
            os.close(pipe)


@pytest.mark.slow  # ONNX Runtime looks up its host after nine seconds
def test_no_host_is_looked_up(tmp_path: Path, resolver: Path) -> None:
    script = "import ox, onnxruntime"
    compare(script, script, tmp_path, resolver, ORT_DISABLE_TELEMETRY="0")


def test_openvino_sends_nothing(tmp_path: Path, resolver: Path) -> None:
    if not any(each.metadata["Name"] == "openvino-telemetry" for each in metadata.distributions()):
        pytest.skip("openvino is not installed")
    compare("from ox.engines.openvino import core; core()", "import openvino", tmp_path, resolver)
    assert not (tmp_path / "silent" / "intel").exists()


def test_ray_sends_no_usage_reports() -> None:
    usage = pytest.importorskip("ray._common.usage.usage_lib", reason="Ray is not installed").__name__
    script = f"""
import os
os.environ.pop("RAY_USAGE_STATS_ENABLED", None)
import {usage} as usage
before = usage.usage_stats_enabled()
os.environ["RAY_USAGE_STATS_ENABLED"] = ""
import ox.ray
print(before, usage.usage_stats_enabled())
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"]
