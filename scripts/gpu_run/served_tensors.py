"""Parts of the step "serving by CUDA": models of tensors, whose results are compared with the CPU provider's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpu_run import device
from gpu_run.served_client import ROWS, served
from gpu_run.served_models import write_lengths, write_perceptron, write_proven

SMALL = ("mlp", "conv")
NOT_HERE = "not here:"  # what this machine lacks for a part


def results() -> dict[str, Any]:
    """Batches of several sizes; one is larger than the model's largest."""
    with served(max_rows=ROWS) as client:
        differences = [client.check(name, rows, rows) for name in SMALL for rows in (1, 3, ROWS, ROWS + 3)]
    return {"largest difference": max(differences)}


def three_instances() -> dict[str, Any]:
    """Many requests at once."""
    with served(max_rows=ROWS, instances=3) as client, ThreadPoolExecutor(6) as threads:
        requests = [(name, 1 + i % 5, i) for i in range(20 if device.short() else 200) for name in SMALL]
        differences = [*threads.map(lambda each: client.check(*each), requests)]
    return {"requests": len(differences), "largest difference": max(differences)}


def cuda_graphs() -> dict[str, Any]:
    """Two sizes of batches in turn, whose graphs get new data in each replay."""
    with served(max_rows=ROWS, cuda={"enable_cuda_graph": True}) as client:
        differences = [client.check(name, rows, i) for i in range(10) for name in SMALL for rows in (1, 4)]
        for model in client.server.models:
            _check_captured(model)
    return {"replays": len(differences), "largest difference": max(differences)}


def _check_captured(model: Any) -> None:
    """Without graphs the results would be the same."""
    from ox.serve.runtime.cuda_provider import NO_GRAPH
    from ox.serve.runtime.device_buffers import graph_shapes

    instance = model.batcher._instances[0]
    captured = {shape for shape in instance._captured if instance._buckets[shape].graph != NO_GRAPH}
    missing = {*graph_shapes(instance._most, instance._padding)} - captured
    assert not missing, f"{model.name} has no CUDA graphs for {sorted(missing)}"


def lengths() -> dict[str, Any]:
    """Requests of several lengths, padded to buckets, without and with a graph for each batch size and bucket."""
    from ox.serve.runtime.device_buffers import DeviceInstance

    padding = {"pad": {"tokens": 0}, "mask": "mask", "max_dims": {"tokens": 40}}
    differences, graphs = list[float](), ""
    for captures in (False, True):
        with served(write_lengths, max_rows=4, cuda={"enable_cuda_graph": captures}, **padding) as client:
            (model,) = client.server.models
            assert isinstance(model.batcher._instances[0], DeviceInstance), "the model has no buffers of its own"
            for rows, tokens in ((1, 3), (2, 8), (3, 9), (1, 40), (4, 33), (1, 3)):
                ids = np.random.default_rng(tokens).integers(0, 11, (rows, tokens))
                feed = {"ids": ids, "mask": np.ones((rows, tokens), np.float32)}
                differences.append(client.compare("lengths", feed))
            if captures:
                _check_captured(model)
                graphs = str(model.graphs)
    return {"requests": len(differences), "largest difference": max(differences), "graphs:": graphs}


def batch_sizes() -> dict[str, Any]:
    """The largest batch is measured on the GPU, and runs."""
    with served(write_perceptron) as client:
        (model,) = client.server.models
        rows = model.proof.max_rows
        assert "rows" in model.fit.measured and 1 <= rows <= 1024, model.describe()
        differences = [client.check("mlp", size, size) for size in {1, max(1, rows // 2), rows}]
    return {"largest batch": rows, "largest difference": max(differences)}


def tf32() -> dict[str, Any]:
    """A file with golden samples, whose products may be rounded."""
    with served(write_proven, max_rows=ROWS, cuda={"use_tf32": True}) as client:
        (model,) = client.server.models
        assert model.proof.max_rows == ROWS, f"it has no batches: {model.proof.why}"
        differences = [client.check("mlp", rows, rows, tolerance=1e-2) for rows in (1, ROWS)]
    return {"largest difference in TF32": max(differences)}


def float16() -> dict[str, Any]:
    """A float32 file that is converted when it is loaded, and compared with its golden samples on the GPU."""
    with served(write_proven, max_rows=ROWS, dtype="float16") as client:
        differences = [client.check("mlp", rows, rows, tolerance=1e-2) for rows in (1, 3, ROWS)]
    # on the stand-in, between Casts, rounding of the weights alone shows
    assert max(differences) > 0, "the results are those of float32"
    return {"largest difference in float16": max(differences)}


def tensorrt() -> dict[str, Any]:
    """Where its libraries are."""
    import onnxruntime

    from ox.devices.onnxruntime.probe import TENSORRT, missing_library, preload

    if not device.stand_in():
        if TENSORRT not in onnxruntime.get_available_providers():
            return {NOT_HERE: f"this ONNX Runtime is built without {TENSORRT}"}
        preload(onnxruntime)
        if library := missing_library(onnxruntime, TENSORRT):
            return {NOT_HERE: library}
    with served(write_perceptron, "tensorrt", max_rows=2) as client:  # few engines are built
        difference = client.check("mlp", 2, 0, tolerance=1e-2)  # TensorRT rounds to TF32
        assert client.server.models[0].engine.place == "tensorrt"
    return {"largest difference in TF32": difference}
