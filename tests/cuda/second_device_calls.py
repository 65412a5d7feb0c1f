"""A program: calls that do work of their own on arrays, with tensors of "cuda:1" while the first device is the current
one. See test_two_devices.py."""

from __future__ import annotations

import sys
import tempfile
import traceback
from copy import deepcopy
from pathlib import Path
from typing import Any

import host_cuda
import numpy as np

host_cuda.install()

import ox  # noqa: E402 (after the stand-in)
from ox import nn  # noqa: E402
from ox.devices.gpu import cublas, device_checks  # noqa: E402
from ox.errors import BoundsError, OxError  # noqa: E402
from ox.nn.utils import prune  # noqa: E402

SECOND = "cuda:1"
F = nn.functional


def there(*sizes: int, grad: bool = False) -> Any:
    return ox.rand(*sizes, device=SECOND).requires_grad_(grad)


def minimized(name: str, **options: Any) -> None:
    p = nn.Parameter(there(4, 4))
    optimizer = getattr(ox.optim, name)([p], **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((p - 1) ** 2).sum()
        loss.backward()
        return loss

    before = closure().item()
    for _ in range(3):
        optimizer.step(closure)
    optimizer.load_state_dict(deepcopy(optimizer.state_dict()))
    optimizer.step(closure)
    state = [x for x in optimizer.state[p].values() if isinstance(x, ox.Tensor) and x.ndim]
    assert closure().item() < before and {x.device for x in (p, p.grad, *state)} == {SECOND}


def optimizers() -> None:
    minimized("LBFGS", line_search_fn="strong_wolfe")
    minimized("AdamW", lr=0.1, amsgrad=True)
    minimized("Rprop")
    minimized("Muon", lr=0.1)
    minimized("Adafactor", lr=0.1)


def sparse_adam() -> None:
    table = nn.Embedding(5, 3, sparse=True).to(SECOND)
    optimizer = ox.optim.SparseAdam(list(table.parameters()))
    table(ox.tensor([1, 2]).to(SECOND)).sum().backward()
    optimizer.step()
    assert table.weight.device == SECOND


def pruning() -> None:
    for prunes in (
        lambda m: prune.l1_unstructured(m, "weight", 0.5),
        lambda m: prune.ln_structured(m, "weight", 0.5, 2, 0),
        lambda m: prune.random_unstructured(m, "weight", 0.5),
        lambda m: prune.global_unstructured([(m, "weight"), (m, "bias")], prune.L1Unstructured, amount=0.4),
    ):
        model = nn.Linear(6, 6).to(SECOND)
        prunes(model)
        model(there(2, 6)).sum().backward()
        prune.remove(model, "weight")
        assert model.weight.device == SECOND and (model.weight == 0).any()


def checked_gradients() -> None:
    x = there(3).double().detach().requires_grad_()
    assert ox.autograd.gradcheck(lambda a: (a * a).sum(), (x,))
    assert ox.autograd.gradgradcheck(lambda a: (a**3).sum(), (x,))


def saved_tensors() -> None:
    x = there(3, grad=True)
    with ox.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x).exp().sum()
    y.backward()
    with ox.autograd.detect_anomaly():
        (x * 2).sum().backward()
    assert x.grad.device == SECOND


def transforms() -> None:
    x = there(3)
    assert np.allclose(ox.func.jacrev(lambda a: a**2)(x).cpu().numpy(), np.diag(2 * x.cpu().numpy()))
    ox.func.hessian(lambda a: (a**3).sum())(x)
    ox.func.vmap(lambda a: a.exp())(there(3, 2))


def copies() -> None:
    model = nn.Linear(2, 2).to(SECOND)
    assert {p.device for p in deepcopy(model).parameters()} == {SECOND}
    averaged = ox.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    assert averaged(there(3, 2)).device == SECOND


def distributions() -> None:
    normal = ox.distributions.Normal(there(3), there(3) + 1)
    assert normal.log_prob(normal.sample()).device == SECOND
    assert ox.distributions.Categorical(there(3)).sample().device == SECOND


def values() -> None:
    x = there(4, 4)
    F.binary_cross_entropy(x, there(4, 4))
    F.gaussian_nll_loss(x, x, there(4, 4))
    x[x > 0.5] = 0
    assert ox.linalg.inv_ex(x + 5 * ox.eye(4, device=SECOND)).inverse.device == SECOND
    try:
        F.embedding(ox.tensor([9]).to(SECOND), x).sum().item()
    except BoundsError:
        pass
    else:
        raise AssertionError("no error")
    device_checks.raise_if_wrong()


def compiled() -> None:
    model = nn.Linear(3, 2).to(SECOND)
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x = there(4, 3)
    step(x)  # compiles the kernels of eager calls, for which host_cuda looks at files
    run = ox.compile(step)
    losses = [run(x).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True) and "one CUDA graph" in str(run.explain())


def exported() -> None:
    model = nn.Linear(3, 2).to(SECOND)
    weight = model.weight.array
    with tempfile.TemporaryDirectory() as folder:
        ox.export.save(model, Path(folder) / "m.onnx", there(4, 3))
    assert model.weight.array is weight


def streams() -> None:
    with ox.cuda.stream(ox.cuda.Stream(device=SECOND)):
        assert (ox.ones(3, device="cuda") * 2).device == SECOND


def products() -> None:
    """The handles and streams of the devices are apart, though calls take turns."""
    side, held = ox.cuda.Stream(device=SECOND), list[list[int]]()
    for stream in (ox.cuda.default_stream(SECOND), side, ox.cuda.default_stream(SECOND)):
        with ox.cuda.stream(stream):
            for x in (there(3, 3), ox.rand(3, 3, device="cuda:0"), there(3, 3)):
                numbers, made = x.cpu().numpy(), x @ x
                assert made.device == x.device and np.allclose(made.cpu().numpy(), numbers @ numbers)
            held.append([cublas._handles.of_thread()[device]._stream.ptr for device in (0, 1)])
    assert held == [[0, 0], [0, side.ptr], [0, 0]], held


def on_the_host() -> None:
    """Arrays of the host, whose data NumPy does not show where the elements are bfloat16."""
    x = ox.ones(2, 3, dtype=ox.bfloat16, requires_grad=True)
    (x.T.clone().contiguous() * 2).sum().backward()
    assert x.grad is not None and x.grad.device == "cpu"


CALLS = [
    optimizers, sparse_adam, pruning, checked_gradients, saved_tensors, transforms, copies, distributions, values,
    compiled, exported, streams, products, on_the_host,
]  # fmt: skip


def main() -> None:
    for call in CALLS:
        try:
            call()
            said = "held"
        except (Exception, OxError) as error:
            said = "failed: " + "".join(traceback.format_exception(error))
        assert ox.cuda.current_device() == 0
        sys.stdout.write(f"{call.__name__} {said}\n")


if __name__ == "__main__":
    main()
