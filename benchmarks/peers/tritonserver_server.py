"""tritonserver itself, out of PyTriton's wheel: a repository with a Python-backend model, dynamic batching on."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

import onnxruntime

PATH, PORT, THREADS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
CONFIG = """
backend: "python"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: {x} }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: {y} }} ]
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
dynamic_batching {{ max_queue_delay_microseconds: 0 }}
"""


def main() -> None:
    packages = Path(sysconfig.get_paths()["purelib"])
    triton = packages / "pytriton" / "tritonserver"
    folder = Path(tempfile.mkdtemp(prefix="triton-"))
    model = folder / "repository" / Path(PATH).stem
    (model / "1").mkdir(parents=True)
    shutil.copy(PATH, model / "1" / "model.onnx")
    # the stub that runs the model's Python forgets PYTHONPATH
    (model / "1" / "packages.py").write_text(f"import sys\n\nsys.path.append({str(packages)!r})\n")
    page = Path(__file__).with_name("triton_model.py").read_text()
    (model / "1" / "model.py").write_text(page.replace("from typing", "import packages  # noqa: F401\nfrom typing", 1))
    session = onnxruntime.InferenceSession(PATH, providers=["CPUExecutionProvider"])
    x, y = (list(end[0].shape[1:]) for end in (session.get_inputs(), session.get_outputs()))
    (model / "config.pbtxt").write_text(CONFIG.format(x=x, y=y, count=THREADS))
    # the wheel's backend has its stub, the process that runs the model's Python, in a folder for each version
    backends = folder / "backends"
    shutil.copytree(triton / "backends", backends)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(triton / "python_backend_stubs" / version / "triton_python_backend_stub", backends / "python")
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(
        [str(packages / "nvidia_pytriton.libs"), os.environ.get("LD_LIBRARY_PATH", "")]
    )
    command = triton / "bin" / "tritonserver"
    flags = {
        "model-repository": model.parent,
        "backend-directory": backends,
        "http-address": "127.0.0.1",
        "http-port": PORT,
        "grpc-address": "127.0.0.1",
        "grpc-port": PORT + 1,
        "metrics-port": PORT + 2,
        "log-info": "false",
    }
    os.execv(command, [str(command), *(f"--{name}={value}" for name, value in flags.items())])


if __name__ == "__main__":
    main()
