"""Parts of the step "serving by CUDA": the memory of the GPU that models take."""

from __future__ import annotations

from typing import Any

from gpu_run import device
from gpu_run.served_client import ROWS, served
from gpu_run.served_models import numbers, wide_bytes, write_products, write_wide

LOADS, LOST = 50, 256 << 20  # of a model; bytes that so many loads may take in all
MIB = 1 << 20


def free() -> int:
    """Bytes of the GPU."""
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[0])


def loads() -> dict[str, Any]:
    """A model is unloaded and loaded while another one answers."""
    left: list[int] = []
    with served(max_rows=ROWS, cuda={"enable_cuda_graph": True}) as client:
        for i in range(5 if device.short() else LOADS):
            client.post("/v2/repository/models/mlp/unload")
            client.check("conv", 2, i)
            client.post("/v2/repository/models/mlp/load")
            client.check("mlp", 3, i)
            left.append(free())
    lost = left[min(4, len(left) - 1)] - left[-1]  # the first ones fill pools
    assert lost < LOST, f"{len(left)} loads have taken {lost // MIB} MiB of the GPU"
    return {"loads": len(left), "MiB taken": lost // MIB}


def shared_weights() -> dict[str, Any]:
    """Two instances of a model take the memory of less than two copies of its weights."""
    with served(max_rows=ROWS, instances=2):  # CUDA's libraries are loaded
        before = free()
        with served(write_wide, max_rows=ROWS, instances=2) as client:
            taken, (model,) = before - free(), client.server.models
            differences = [client.check("wide", 1 + i % ROWS, i) for i in range(6)]
            assert model.engine.shares_on == (0,), "the sessions do not share weights"
            names = sorted(model.engine._weights.names)
    assert "w" in names, f"of the weights, only {names} are shared"
    found = {"MiB of weights": wide_bytes() // MIB, "MiB taken": taken // MIB}
    assert taken < 2 * wide_bytes(), f"two instances take as much as two copies: {found}"
    return {**found, "largest difference": max(differences)}


def request_beyond_the_limit() -> dict[str, Any]:
    """A request that needs more than `gpu_mem_limit` is told so, by what ONNX Runtime says, and the next one runs. The
    stand-in has no limit."""
    size = 1024 if device.short() else 8192  # of whose products 256 MiB are made
    with served(write_products, max_rows=1, max_dims={"n": size}, cuda={"gpu_mem_limit": "64MiB"}) as client:
        tensor = {"name": "x", "shape": [1, size], "datatype": "FP32", "data": numbers(size).tolist()}
        status, text = client.ask("/v2/models/products/infer", {"inputs": [tensor]})
        if not device.stand_in():
            said = "this request needs more memory of the GPU than a run may take"
            assert status == 413 and said in text and "64 MiB for a session (gpu_mem_limit)" in text, f"{status} {text}"
        difference = client.compare("products", {"x": numbers(1, 64)})
    return {"status": status, "largest difference": difference}


def memory_limit() -> dict[str, Any]:
    """Two models, of which one has no room within the limit of all."""
    from ox.serve import RequestLimits

    limits = RequestLimits(gpu_memory=1 << 30)
    with served(limits=limits, max_rows=2, cuda={"gpu_mem_limit": "768MiB"}) as client:
        states = {each["name"]: each for each in client.post("/v2/repository/index")}
        (ready,) = (name for name in states if states[name]["state"] == "READY")
        (refused,) = set(states) - {ready}
        reason = states[refused]["reason"]
        for text in (f"cuda:0 has no room for {refused} 1", "of 1,024 for all models", f"loaded: {ready} 1 768 MiB"):
            assert text in reason, f"'{text}' is not in: {reason}"
        difference = client.check(ready, 2, 0)
        client.post(f"/v2/repository/models/{ready}/unload")
        client.post(f"/v2/repository/models/{refused}/load")
        difference = max(difference, client.check(refused, 2, 0))
    return {"refused": 1, "largest difference": difference}
