"""Where the time of a GPT's training step goes: `python -m gpu_run.gpt_profile FILE`.

By operator, with ox's profiler, which waits for the device after each; by kernel, with PyTorch's profiler where it is
installed and sees the GPU. `nsys profile` sees the same steps, each in a range of the name "step".
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_run import device
from gpu_run.device_counts import is_on_device

WARM, STEPS, ROWS = 3, 3, 15


def sizes() -> dict[str, int]:
    """Of the model and its batch; small ones for a stand-in."""
    if device.stand_in() or device.short():
        return {"n_layer": 1, "n_embd": 32, "n_head": 2, "length": 16, "batch": 2, "vocab_size": 65}
    return {"n_layer": 8, "n_embd": 768, "n_head": 12, "length": 512, "batch": 16, "vocab_size": 50304}


def training_step() -> Callable[[], Any]:
    from training_steps import training_step

    import ox
    from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel

    size = sizes()
    length, batch = size.pop("length"), size.pop("batch")
    model = GPT2LMHeadModel(GPT2Config(n_positions=length, **size)).to("cuda")
    tokens = np.random.default_rng(0).integers(0, size["vocab_size"], (batch, length + 1))
    inputs, targets = (ox.tensor(part).to("cuda") for part in (tokens[:, :-1], tokens[:, 1:]))
    step = training_step(model, amp=True)
    return lambda: step(inputs, targets)


def marked(step: Callable[[], Any]) -> Callable[[], Any]:
    """The step in a range of NVTX."""
    from cupyx.profiler import time_range

    def run() -> Any:
        with time_range("step"):
            return step()

    return run


def by_operator(step: Callable[[], Any]) -> list[tuple[str, float, float]]:
    """Name, calls and milliseconds of a step."""
    from ox.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(STEPS):
            step()
    rows = sorted(profiler.key_averages(), key=lambda row: -row.self_cpu_time_total)[:ROWS]
    return [(row.key, row.count / STEPS, row.self_cpu_time_total / 1000 / STEPS) for row in rows]


def by_kernel(step: Callable[[], Any]) -> list[tuple[str, float, float]] | str:
    """Name, launches and milliseconds of a step; or why there are none."""
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return "PyTorch, whose profiler sees kernels, is not installed"
    if device.stand_in() or not torch.cuda.is_available():
        return "this PyTorch sees no GPU"
    import ox

    torch.cuda.init()
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(STEPS):
                step()
            ox.cuda.synchronize()
    except Exception as error:  # under nsys, which is a profiler, too
        return device.one_line(error)
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for event in profiler.events():
        if is_on_device(event):
            counts[event.name] += 1
            times[event.name] += event.time_range.elapsed_us()
    return [(name[:90], counts[name] / STEPS, time / 1000 / STEPS) for name, time in times.most_common(ROWS)]


def main() -> int:
    device.prepare()
    step = marked(training_step())
    for _ in range(WARM):
        step()
    found: dict[str, Any] = {"sizes": sizes(), "operators": by_operator(step)}
    device.write(found)
    found["kernels"] = by_kernel(step)
    device.write(found)
    for name in ("operators", "kernels"):
        print(f"{name}:", found[name] if isinstance(found[name], str) else "")
        for row in found[name] if isinstance(found[name], list) else []:
            print("  {:<90} {:8.1f} {:9.3f} ms".format(*row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
