"""Launches each of ox's kernels for GPUs: `python -m gpu_run.each_kernel FILE [TOOL OPTION...]`.

The tool is one that looks at what they do. A kernel that ends its process does not keep the others from running.

Under compute-sanitizer every array has memory of its own, so that an access behind its end is seen.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ox
from gpu_run import device, parts
from ox import nn
from ox.core.operator import OPS
from ox.devices.gpu import kernels as cuda_kernels
from ox.devices.gpu.segment_copy import copy_runs
from ox.devices.gpu.top_k import best_of_rows, forbid

F = nn.functional
SOURCES = Path(cuda_kernels.__file__).parent
NAME = re.compile(r'"(ox_[a-z0-9_]+)"')  # as the callers of the kernels write it
OPTIMIZERS = (
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "NAdam",
    "RAdam",
    "Adamax",
    "Adagrad",
    "Adadelta",
    "ASGD",
    "Rprop",
    "Lion",
)
SIZE = (5, 67)  # more than a warp, and no multiple of it
LONG = 5000  # a row of a block


def names() -> set[str]:
    """The kernels of ox/kernels/source that eager calls launch."""
    found: set[str] = set()
    for file in SOURCES.glob("cuda_*.py"):
        found |= set(NAME.findall(file.read_text()))
    return found


def record(launched: set[str]) -> Callable[[], None]:
    """Note the name of each kernel that is launched from now on; generated ones, too. Call the result to stop it."""
    load = cuda_kernels._functions

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def launch(*arguments: Any, **options: Any) -> None:
            launched.add(name)
            function(*arguments, **options)

        return launch

    def recorded(text: str, names: Any, options: Any) -> dict[str, Any]:
        return {name: noted(name, function) for name, function in load(text, names, options).items()}

    def stop() -> None:
        cuda_kernels._functions = load
        cuda_kernels.functions.cache_clear()
        cuda_kernels.kernel.cache_clear()

    cuda_kernels._functions = recorded
    return stop


def random(*shape: int, dtype: Any = None) -> Any:
    numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return ox.tensor(numbers).to("cuda").to(dtype or ox.float32).requires_grad_()


def integers(below: int, *shape: int) -> Any:
    return ox.tensor(np.random.default_rng(0).integers(0, below, shape)).to("cuda")


def activations() -> None:
    for dtype in (ox.float32, ox.float16, ox.bfloat16):
        for work in (ox.erf, ox.sigmoid, F.softplus, F.silu, F.gelu, ox.tanh, F.relu):
            work(random(*SIZE, dtype=dtype)).sum().backward()
        F.gelu(random(*SIZE, dtype=dtype), approximate="tanh").sum().backward()
        x = random(*SIZE, dtype=dtype)
        (x + x) * (x - x)


def rows() -> None:
    for dtype in (ox.float32, ox.float16, ox.bfloat16, ox.float64):
        for work in (F.softmax, F.log_softmax):
            work(random(*SIZE, dtype=dtype), -1).square().sum().backward()
        if dtype == ox.float64:
            continue
        with ox.backends.cudnn.flags(enabled=False):
            for size in (SIZE[1], 300, LONG):  # a row of a warp, of a block's registers, and of a block
                x, weights = random(SIZE[0], size, dtype=dtype), random(size, dtype=dtype)
                F.layer_norm(x, (size,), weights, random(size, dtype=dtype)).square().sum().backward()
                F.rms_norm(x, (size,), weights).square().sum().backward()
                F.softmax(x, -1).square().sum().backward()


def losses() -> None:
    for rows in (SIZE[0], 20_000):  # a mean of one block, and of several
        F.cross_entropy(random(rows, SIZE[1]), integers(SIZE[1], rows)).backward()
    for dtype in (ox.float32, ox.float16, ox.bfloat16):
        for size in (SIZE[1], LONG):
            scores, weights = random(SIZE[0], size, dtype=dtype), random(size, dtype=dtype).detach()
            F.cross_entropy(scores, integers(size, SIZE[0]), weights, label_smoothing=0.1).backward()
    F.cross_entropy(random(*SIZE), integers(SIZE[1], SIZE[0]), reduction="sum").backward()


def attention() -> None:
    for dtype in (ox.float32, ox.float16, ox.bfloat16):
        q, k, v = (random(2, 3, 6, 8, dtype=dtype) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
        bias = random(6, 6, dtype=dtype)
        F.scaled_dot_product_attention(q, k, v, bias.detach(), dropout_p=0.3).sum().backward()
        F.scaled_dot_product_attention(q, k, v, bias).sum().backward()  # it keeps the weights


def numbers() -> None:
    ox.rand(*SIZE, device="cuda"), ox.randn(*SIZE, device="cuda")
    for dtype in (ox.float32, ox.float16, ox.bfloat16):
        F.dropout(random(*SIZE, dtype=dtype), 0.5).sum().backward()
    key, counter = (ox.tensor(np.array(number, np.uint64)).to("cuda") for number in (1, 2))  # as in compiled calls
    for name in ("ox.RandomUniform", "ox.RandomNormal"):
        OPS[name](key, counter, ox.tensor(SIZE))
    for dtype in (ox.float32, ox.float16, ox.bfloat16):
        OPS["ox.PhiloxDropout"](random(*SIZE, dtype=dtype), key, counter, p=0.5)


def indices() -> None:
    for count in (7, 3000):  # compared with each other, and sorted
        for dtype in (ox.float32, ox.float16):
            F.embedding(integers(50, count), random(50, 9, dtype=dtype)).sum().backward()
    for dtype in (ox.int32, ox.int64):
        random(50, 9)[integers(50, 7).to(dtype)]
    ox.zeros(50, 9, device="cuda").scatter_add(0, integers(50, 7, 9), random(7, 9)).sum().backward()
    random(50, 9).gather(0, integers(50, 7, 9)).sum().backward()


def steps() -> None:
    """Optimizers, whose kernels are generated, with scaled and clipped gradients."""
    for name in OPTIMIZERS:
        model = nn.Sequential(nn.Linear(5, 67), nn.ReLU(), nn.Linear(67, 3)).to("cuda")
        optimizer = getattr(ox.optim, name)(model.parameters())
        scaler = ox.GradScaler("cuda", init_scale=8.0)
        for _ in range(2):
            optimizer.zero_grad()
            with ox.autocast("cuda", ox.float16):
                loss = model(random(4, 5).detach()).square().sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            scaler._check_skips()  # as a compiled step does


def windows() -> None:
    """Convolutions, with groups too, pools and batch normalization; without cuDNN, which has kernels of its own."""
    with ox.backends.cudnn.flags(enabled=False):
        for dtype in (ox.float32, ox.float16, ox.bfloat16):
            x = random(3, 4, 9, 7, dtype=dtype)
            for groups in (1, 2):
                weights = random(6, 4 // groups, 3, 3, dtype=dtype)
                F.conv2d(x, weights, random(6, dtype=dtype), 2, 1, groups=groups).sum().backward()
                weights = random(4, 6 // groups, 3, 3, dtype=dtype)
                F.conv_transpose2d(x, weights, stride=2, groups=groups).sum().backward()
            F.max_pool2d(x, 3, 2, 1).sum().backward()
            F.avg_pool2d(x, 3, 2, 1).sum().backward()
    norm = nn.BatchNorm2d(4).to("cuda")
    norm(random(3, 4, 9, 7)).square().sum().backward()
    norm.eval()(random(3, 4, 9, 7)).square().sum().backward()


def decoding() -> None:
    """What text generation launches beside ONNX Runtime."""
    import cupy

    scores, words = cupy.zeros((3, 700), np.float16), cupy.zeros(3 * 51, np.int64)
    best_of_rows(scores, words, 5, sums=True)
    forbid(scores, cupy.full((len(scores), -(-scores.shape[1] // 32)), 5, np.uint32))
    crowded = cupy.tile(cupy.arange(256) < 20, (3, 100)).astype(np.float32)  # the best lie with few threads
    best_of_rows(crowded, words, 50, sums=False)
    copy_runs(int(scores.data.ptr), int(scores.data.ptr) + 1400, 2, 600, 700, 700, exchange=True)


def recurrent() -> None:
    for dtype in (ox.float32, ox.float64):
        for make in (nn.RNN, nn.GRU, nn.LSTM):
            layer, packed = make(5, 67, bidirectional=True).to("cuda").to(dtype), ox.tensor([3, 2])
            x = nn.utils.rnn.pack_padded_sequence(random(3, 2, 5, dtype=dtype), packed)
            layer(x)[0].data.sum().backward()
        x, w, r = (random(*size, dtype=dtype) for size in ((3, 2, 5), (1, 3 * 67, 5), (1, 3 * 67, 67)))
        OPS["GRU"](x, w, r, hidden_size=67)[0].sum().backward()  # ONNX's form: the reset before the product


def compiled() -> None:
    """Kernels that `ox.compile` generates, one after the other and in a CUDA graph."""
    from training_steps import WARM_STEPS, gpt, lenet, training_step

    for make, amp in ((gpt, False), (lenet, True)):
        model, inputs, targets = (each.to("cuda") for each in make())
        step = ox.compile(training_step(model, amp))
        for _ in range(WARM_STEPS + 1):
            step(inputs, targets).item()
        assert "one CUDA graph" in str(step.explain()), step.explain()


WORKS: tuple[Callable[[], None], ...] = (
    activations, rows, losses, attention, numbers, indices, windows, recurrent, steps, decoding,
)  # fmt: skip


def answer() -> int:
    """The parts that are asked for; each finds the kernels that it launches."""
    device.prepare()
    import cupy

    cupy.cuda.set_allocator(None)
    launched: set[str] = set()
    stop = record(launched)

    def part(work: Callable[[], None]) -> Callable[[], list[str]]:
        def run() -> list[str]:
            launched.clear()
            if work is compiled:
                stop()  # a step that notes something stays eager
            work()
            ox.cuda.synchronize()
            return sorted(launched)

        return run

    return parts.answer({work.__name__: part(work) for work in (*WORKS, compiled)})


def main() -> int:
    if parts.ONLY in sys.argv:
        return answer()
    file = Path(sys.argv[1])
    works = [work.__name__ for work in (*WORKS, compiled)]
    result = parts.run("gpu_run.each_kernel", works, file.with_suffix(".log"), sys.argv[2:])
    if not result or (sys.argv[2:] and not result["found"]):  # the tool's output says why
        return 1
    launched = {kernel for found in result["found"].values() for kernel in found}
    absent = names() - launched if result["found"].keys() == {*works} else set()
    failed = [*result["failed"], *(f"{name} is not launched by this program" for name in sorted(absent))]
    print(*failed, sep="\n")
    device.write({"failed": failed, "kernels": len(launched)})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
