"""The runtimes of `make embed`: what is installed for each, in an environment of its own, and how it runs a file."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RUNNERS = Path(__file__).with_name("runners")
SECONDS = 120  # that a file may take; IREE and TVM compile for a few


@dataclass(frozen=True)
class Runtime:
    """Attributes:
    name: as it calls itself.
    runner: a file of `runners`.
    packages: for pip, or for npm where `npm` is True.
    target: what `ox export --target` calls it; None for what runs every file as it is.
    program: what else has to be installed on the machine.
    alone: for pip, without what they depend on and what is not needed here: a PyTorch of gigabytes.
    batched: whether its tensors have a dimension for the batch; without one, a size of 1 more or less is no difference.
    """

    name: str
    runner: str
    packages: tuple[str, ...]
    target: str | None = None
    npm: bool = False
    program: str | None = None
    alone: tuple[str, ...] = ()
    batched: bool = True


ORT_NPM = ("onnxruntime-node@1.30", "onnxruntime-web@1.30")
RUNTIMES = (
    Runtime("ONNX Runtime, Python", "onnxruntime_python.py", ("onnxruntime==1.32.*",)),
    Runtime("ONNX Runtime, node", "onnxruntime_node.py", ORT_NPM, npm=True, program="node"),
    Runtime("ONNX Runtime, browser", "onnxruntime_web.py", ORT_NPM, npm=True, program="chromium"),
    Runtime("OpenVINO", "openvino_python.py", ("openvino==2026.4.*",), "openvino"),
    Runtime("onnx.reference", "onnx_reference.py", ("onnx==1.23.*",)),
    Runtime("tract", "tract_python.py", ("tract==0.23.9",)),
    Runtime("MNN", "mnn_python.py", ("MNN==3.6.1",), "mnn"),
    Runtime("IREE", "iree_python.py", ("iree-base-compiler[onnx]==3.13.*", "iree-base-runtime==3.13.*"), "iree"),
    Runtime("TVM", "tvm_python.py", ("apache-tvm==0.27.0.post1", "onnx==1.23.*"), "tvm"),
    Runtime("OpenCV", "opencv_python.py", ("opencv-python-headless==5.0.0.93",), "opencv"),
    Runtime("ncnn", "ncnn_python.py", (), "ncnn", batched=False, alone=("ncnn==1.0.20261020", "pnnx==20261020")),
)


@dataclass(frozen=True)
class Run:
    """What became of one file in one runtime: outputs, or the reason why there are none."""

    version: str
    seconds: float
    outputs: Sequence[np.ndarray] = ()
    reason: str | None = None


def folder_of(runtime: Runtime, work: Path) -> Path:
    """Where its packages are; those of npm share a folder."""
    return work / ("npm" if runtime.npm else runtime.runner.removesuffix(".py"))


def installed(runtime: Runtime, work: Path) -> bool:
    """Whether these versions of its packages are there."""
    note = folder_of(runtime, work) / "installed"
    return note.exists() and note.read_text() == " ".join(runtime.packages + runtime.alone)


def python_of(runtime: Runtime, work: Path) -> str:
    """The interpreter that runs its runner."""
    return sys.executable if runtime.npm else str(folder_of(runtime, work) / "bin" / "python")


def install(runtime: Runtime, work: Path) -> None:
    """Make its environment in `work`, if it is not there."""
    folder = folder_of(runtime, work)
    if installed(runtime, work):
        return
    if runtime.npm:
        folder.mkdir(parents=True, exist_ok=True)
        # the package holds the CPU's library; the script would download that of GPUs
        variables = {**os.environ, "ONNXRUNTIME_NODE_INSTALL": "skip"}
        words = ["npm", "install", "--no-fund", "--no-audit", "--no-package-lock", *runtime.packages]
        subprocess.run(words, cwd=folder, env=variables, check=True, capture_output=True)
    else:
        venv.create(folder, with_pip=True, clear=True)
        pip = [python_of(runtime, work), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "numpy", *runtime.packages], check=True)
        if runtime.alone:
            subprocess.run([*pip, "--no-deps", *runtime.alone], check=True)
    (folder / "installed").write_text(" ".join(runtime.packages + runtime.alone))


def missing(runtime: Runtime) -> str | None:
    """What the machine lacks for a runtime."""
    needed = [runtime.program, "npm"] if runtime.npm else [runtime.program]
    return next((f"{name} is not installed" for name in needed if name and shutil.which(name) is None), None)


def run(runtime: Runtime, work: Path, model: Path, feed: Mapping[str, np.ndarray], outputs: Sequence[str]) -> Run:
    """Run a file in a process of its own: a crash, or a run without end, is a reason like any other."""
    folder = model.with_suffix("") / runtime.runner.removesuffix(".py")
    folder.mkdir(parents=True, exist_ok=True)
    copy = shutil.copy(model, folder / "model.onnx")  # converters write beside it
    np.savez(folder / "inputs.npz", **feed)
    (folder / "outputs.npz").unlink(missing_ok=True)
    words = [python_of(runtime, work), str(RUNNERS / runtime.runner), str(copy)]
    words += ["inputs.npz", "outputs.npz", ",".join(outputs)]
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"EMBED_NPM": str(work / "npm")}
    process = subprocess.Popen(
        words, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        printed, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Run("", 0.0, reason=f"no result after {SECONDS} s")
    facts: dict[str, float | str] = {}
    for line in printed.splitlines():
        if line.startswith('{"'):
            facts |= json.loads(line)
    version = str(facts.get("version", ""))
    if "load" not in facts:
        return Run(version, 0.0, reason=one_line(str(facts["reason"])) if "reason" in facts else ended(process, errors))
    with np.load(folder / "outputs.npz") as file:
        return Run(version, float(facts["load"]) + float(facts["run"]), [file[name] for name in file.files])


def ended(process: subprocess.Popen[str], errors: str) -> str:
    """How a process ended that gave no reason: its signal, or the last line of its errors."""
    if process.returncode < 0:
        return f"ends with {signal.Signals(-process.returncode).name}"
    return one_line(errors.strip().splitlines()[-1] if errors.strip() else f"ends with {process.returncode}")


def one_line(text: str, longest: int = 180) -> str:
    """A message without line breaks, folders and signs of Markdown, and without the end of a long one."""
    line = re.sub(r"(?<![\w.])(/[\w.+@-]+)+/", "", " ".join(text.split())).replace("|", r"\|").replace("<", "&lt;")
    return line if len(line) <= longest else line[: longest - 1] + "…"
