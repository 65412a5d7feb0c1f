"""The least that has to work, in the order in which it breaks: `python -m gpu_run.smoke FILE "a tensor"`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from gpu_run import device


def a_tensor() -> None:
    """A tensor goes to the device and comes back."""
    import ox

    numbers = np.arange(6, dtype=np.float32)
    x = ox.tensor(numbers).to("cuda")
    assert x.device.type == "cuda" and x.cpu().tolist() == numbers.tolist()


def a_kernel() -> None:
    """A kernel of CuPy, and one of ox, which NVRTC compiles."""
    import ox

    x = ox.tensor(np.linspace(-2, 2, 300, dtype=np.float32))
    for function in (lambda x: x * 2 + 1, ox.erf):
        np.testing.assert_allclose(function(x.to("cuda")).cpu().numpy(), function(x).numpy(), rtol=1e-5, atol=1e-6)


def a_product() -> None:
    """A product of matrices by cuBLAS."""
    import ox

    a, b = (ox.tensor(np.random.default_rng(i).standard_normal((33, 33)).astype(np.float32)) for i in (0, 1))
    np.testing.assert_allclose((a.to("cuda") @ b.to("cuda")).cpu().numpy(), (a @ b).numpy(), rtol=1e-4, atol=1e-4)


def a_step() -> None:
    """Three training steps, whose losses are those of the CPU."""
    import ox
    from ox import nn

    losses = []
    for where in ("cpu", "cuda"):
        ox.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(where)
        optimizer = ox.optim.AdamW(model.parameters(), lr=0.05)
        numbers = np.random.default_rng(0)
        x = ox.tensor(numbers.standard_normal((10, 8)).astype(np.float32)).to(where)
        y = ox.tensor(numbers.integers(0, 3, 10)).to(where)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    np.testing.assert_allclose(losses[3:], losses[:3], rtol=1e-3)


def a_compiled_call() -> None:
    """The first compiled call of a process, which compiles kernels while it is recorded: one CUDA graph."""
    import ox
    from ox import nn

    ox.manual_seed(0)
    model = nn.Linear(8, 4)
    x = ox.tensor(np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32))
    expected = (model(x) * 2 + 1).sum().item()
    model, x = model.to("cuda"), x.to("cuda")
    call = ox.compile(lambda x: (model(x) * 2 + 1).sum())
    for _ in range(4):  # recorded, replayed, captured, launched
        np.testing.assert_allclose(call(x).item(), expected, rtol=1e-4)
    assert "one CUDA graph" in str(call.explain()), str(call.explain())


CHECKS: tuple[Callable[[], None], ...] = (a_tensor, a_kernel, a_product, a_step, a_compiled_call)
NAMES = {check.__name__.replace("_", " "): check for check in CHECKS}


def main() -> int:
    device.prepare()
    check = NAMES[sys.argv[2]]
    what = (check.__doc__ or "").strip()
    try:
        check()
    except Exception as error:
        print(f"{error}\n{what}")
        device.write({"failed": [f"{what} {device.one_line(error)}"]})
        return 1
    print(f"works: {what}")
    import ox

    device.write({"devices": ox.cuda.device_count()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
