"""The GPU of tests of serving: what it skips, what it counts, and sessions that note what they are asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cuda_session
import numpy as np
import onnx
import onnxruntime
import pytest
import serving_gpu
from cuda_session import CPU, CUDA, CudaSession
from serving_gpu import ServingGpu

ROOT = Path(__file__).resolve().parents[2]
MARKED = """
import sys, types
import pytest

@pytest.mark.gpu
@pytest.mark.stand_in("a GPU cannot be lost on purpose")
def test_alone(): pass

@pytest.mark.gpu
def test_both(): pass
"""


@pytest.mark.parametrize("stand_in", ["host_cuda", "other"])
def test_what_needs_the_stand_in_is_skipped_on_a_gpu(stand_in: str, tmp_path: Path) -> None:
    (tmp_path / "test_file.py").write_text(MARKED)
    tree = (ROOT / "tests" / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(f"{tree}\n\nno_gpu = lambda: None\nsys.modules[{stand_in!r}] = sys\n")
    options = ["-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-p", "no:randomly", "-n0"]
    words = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", "test_file.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    if stand_in == "host_cuda":
        assert "2 passed" in done.stdout
    else:
        assert "1 passed, 1 skipped" in done.stdout and "a GPU cannot be lost on purpose" in done.stdout


def real() -> ServingGpu:
    gpu = ServingGpu()
    gpu._host_cuda = None
    return gpu


def test_a_gpu_without_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime-gpu that is installed and has no provider is no reason to skip."""
    made = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CPU])
    monkeypatch.setattr(serving_gpu, "runtime_distributions", lambda: {"onnxruntime": "1.32.0"})
    with pytest.raises(pytest.skip.Exception, match="onnxruntime-gpu is not installed"):
        real().serve(monkeypatch)
    with pytest.raises(pytest.skip.Exception, match="built without TensorrtExecutionProvider"):
        real().require(cuda_session.TENSORRT)
    assert onnxruntime.InferenceSession is made
    monkeypatch.setattr(serving_gpu, "runtime_distributions", lambda: {"onnxruntime-gpu": "1.32.0"})
    real().serve(monkeypatch)
    assert onnxruntime.InferenceSession is not made


@pytest.mark.filterwarnings("ignore:Specified provider 'CUDAExecutionProvider'")
@pytest.mark.skipif(CUDA in onnxruntime.get_available_providers(), reason="tests with the mark gpu run it")
def test_a_session_notes_what_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's own session of the CPU, as it takes no other provider here."""
    cuda_session.note(monkeypatch.setattr)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "negative", [x], [y])
    opset = [onnx.helper.make_opsetid("", 21)]
    file = onnx.helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    given = [(CUDA, {"device_id": "0"}), CPU]
    session = onnxruntime.InferenceSession(file, onnxruntime.SessionOptions(), providers=given, enable_fallback=0)
    assert CudaSession.made == [session] and type(session) is CudaSession and session.options == {"device_id": "0"}
    assert session.get_providers() == [CPU] and session.names_in("tensor(float)") == {"x", "y"}
    ones = np.ones((3, 2), np.float32)
    assert (session.run(["y"], {"x": ones})[0] == -1).all()
    options, binding, out = onnxruntime.RunOptions(), session.io_binding(), np.empty((3, 2), np.float32)
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    binding.real.bind_input("x", "cpu", 0, np.float32, (3, 2), ones.ctypes.data)
    binding.real.bind_output("y", "cpu", 0, np.float32, (3, 2), out.ctypes.data)
    session.run_with_iobinding(binding, options)
    assert (out == -1).all() and session.waited == [False] and session.graphs == [""]
    CudaSession.missing = (CPU,)
    CudaSession.failures = 1
    with pytest.raises(RuntimeError, match="CUDA failure 700"):
        session.run_with_iobinding(binding, options)
    session.run_with_iobinding(binding, options)
    assert session.get_providers() == []


def test_what_is_set_on_the_class_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager code replaces `__init__`, so that all sessions share one pool of threads; ONNX Runtime refuses others."""
    own = cuda_session.InferenceSession
    monkeypatch.setattr(own, "__init__", own.__init__)  # what it was comes back
    cuda_session.note(monkeypatch.setattr)

    def shared(*arguments: object, **more: object) -> None:
        pass

    onnxruntime.InferenceSession.__init__ = shared
    assert own.__init__ is CudaSession.__mro__[1].__init__ is onnxruntime.InferenceSession.__init__ is shared


@pytest.mark.gpu
@pytest.mark.stand_in("a GPU does not count copies")
def test_what_a_block_does() -> None:
    import cupy

    gpu, array, host = ServingGpu(), cupy.zeros(4, np.float32), np.ones(4, np.float32)
    copied = {"to device": 1, "bytes to device": 16}
    with gpu.doing({"to device": 1}, others=True):
        array.set(host)
    for wrong in ({"to device": 1}, {**copied, "to host": 9}):
        with pytest.raises(AssertionError), gpu.doing(wrong):
            array.set(host)
