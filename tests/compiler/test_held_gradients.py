"""`backward()` adds into the gradient that is there, in every call: who holds it, or the memory that it is a view of,
sees the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rows import rows

import ox
from ox import nn

F = nn.functional
Run = Callable[[Any], Any]


def zeroed_outside(wrap: Run, stays_eager: bool) -> list[Any]:
    """Gradients are taken once, and zeroed before each step."""
    model, optimizer = model_of()
    model(ox.randn(2, 4)).sum().backward()
    grads = [p.grad for p in model.parameters()]

    def step(x: Any, t: Any) -> Any:
        loss = F.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        return loss.item() if stays_eager else loss.detach()

    run, found = wrap(step), []
    for _ in range(6):
        for g in grads:
            g.zero_()
        found.append(float(run(*batch())))
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))
    return [found, *(p.tolist() for p in model.parameters())]


def views_of_a_buffer(wrap: Run, stays_eager: bool) -> list[Any]:
    """All gradients lie in one buffer, which the step zeroes."""
    model, optimizer = model_of()
    flat = ox.zeros(15)
    model.weight.grad, model.bias.grad = flat[:12].view(3, 4), flat[12:]

    def step(x: Any, t: Any) -> Any:
        flat.zero_()
        loss = F.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        return loss.item() if stays_eager else loss.detach()

    run = wrap(step)
    found = [float(run(*batch())) for _ in range(6)]
    return [found, flat.tolist(), *(p.tolist() for p in model.parameters())]


def read_before(wrap: Run, stays_eager: bool) -> list[Any]:
    """The code looks at a gradient before it adds to it."""
    model, optimizer = model_of()
    model(ox.randn(2, 4)).sum().backward()
    held = model.weight.grad

    def step(x: Any, t: Any) -> Any:
        norm = model.weight.grad.abs().sum()
        loss = F.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        return (loss + norm).item() if stays_eager else (loss + norm).detach()

    run = wrap(step)
    found = [float(run(*batch())) for _ in range(6)]
    return [found, held.tolist()]


def model_of() -> tuple[Any, Any]:
    ox.manual_seed(0)
    model = nn.Linear(4, 3)
    return model, ox.optim.SGD(model.parameters(), lr=0.1)


def batch() -> tuple[Any, Any]:
    return ox.randn(6, 4), ox.randint(0, 3, (6,))


@rows("stays_eager", [False, True], ids=["recorded", "stays eager"])
@rows("train", [zeroed_outside, views_of_a_buffer, read_before])
@rows("options", [{}, {"backend": "onnxruntime"}, {"backend": "eager"}], ids=str)
def test_held_gradients(train: Any, stays_eager: bool, options: dict[str, Any]) -> None:
    wanted = train(lambda f: f, stays_eager)
    got = train(lambda f: ox.compile(f, **options), stays_eager)
    for one, other in zip(got, wanted, strict=True):
        assert ox.tensor(one).allclose(ox.tensor(other), rtol=1e-4, atol=1e-6)
