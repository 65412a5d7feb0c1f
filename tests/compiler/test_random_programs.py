"""Random programs, compiled and eager: a few operators, writes in place, views, state, gradients, in random order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from beside_eager import Program, compare
from rows import rows

import ox
import ox.nn.functional as F
from ox import nn

SHAPE = (3, 4)
Pick = Callable[[list[Any]], Any]


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(ox.randn(*SHAPE)), nn.Parameter(ox.randn(*SHAPE))
        self.register_buffer("count", ox.zeros(1))
        self.register_buffer("table", ox.randn(*SHAPE))
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)


def binary(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    a, b = pick(held), pick(held)
    held.append(
        [a + b, a * b, a - b, a / (b.abs() + 1), ox.maximum(a, b), ox.where(a > b, a, b * 2)][random.integers(6)]
    )


def unary(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    a = pick(held)
    held.append(
        [a.tanh(), a.sigmoid(), F.gelu(a), a.clamp(-1, 1), F.softmax(a, -1), a.abs().sqrt()][random.integers(6)]
    )


def reduction(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    a = pick(held)
    held.append([a.mean() + a, a - a.amax(1, keepdim=True), a.sum(0) * a, a.cumsum(1)][random.integers(4)])


def layer(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    a = pick(held)
    held.append([net.layer(a), net.norm(a), F.dropout(a, 0.5), F.layer_norm(a, (4,))][random.integers(4)])


def state(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    held.append([net.weight * 1, net.table + 0, net.count * pick(held), net.weight.detach()][random.integers(4)])


def write(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    a, b = pick(held), pick(held).detach()
    kind = random.integers(5)
    with ox.no_grad():
        if kind == 0:
            net.table.mul_(0.5).add_(b)
        elif kind == 1:
            net.table[random.integers(3)] = b[0]
        elif kind == 2:
            net.count += b.mean()
        elif kind == 3:
            net.table.copy_(b)
    if kind == 4:
        made = a * 1
        made[random.integers(3), 1:] = b[0, 1:]
        made += b
        held.append(made)


def view(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    a = pick(held)
    made = [a.reshape(4, 3).T.reshape(3, 4), a[:, [3, 1, 0, 2]], a.flip(0), ox.cat([a[1:], a[:1]])][random.integers(4)]
    held.append(made)


def draw(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    held.append(ox.rand(*SHAPE) if random.integers(2) else pick(held) + ox.randn(*SHAPE))


def cut(net: State, held: list[Any], random: Any, pick: Pick) -> None:
    held.append(pick(held).detach() * 2)


PARTS = [binary, unary, reduction, layer, state, write, view, draw, cut]


def forward_of(seed: int, length: int) -> Callable[[State, Any], Any]:
    """A function of a module and a tensor, the same for the same seed."""

    def forward(net: State, x: ox.Tensor) -> Any:
        random = np.random.default_rng(seed)

        def pick(held: list[Any]) -> Any:
            return held[random.integers(len(held))]

        held = [x * 1, net.weight * net.other]
        for part in random.integers(len(PARTS), size=length):
            PARTS[part](net, held, random, pick)
        chosen = [held[-1], pick(held) * 2]
        return sum(y.mean() for y in held) + net.other.sum(), chosen

    return forward


def step_of(seed: int) -> Callable[[Program], Any]:
    forward = forward_of(seed, 6 + seed % 9)
    kind = seed % 3

    def step(program: Program) -> Any:
        if kind == 0:  # a whole step

            def whole(x: ox.Tensor) -> Any:
                program.optimizer.zero_grad(set_to_none=bool(seed % 2))
                loss, chosen = forward(program.model, x)
                loss.backward()
                program.optimizer.step()
                return loss.detach(), chosen[1].detach().clone()

            return whole
        return lambda x: forward(program.model, x)

    return step


OPTIMIZERS: list[Callable[[Any], Any]] = [
    lambda p: ox.optim.SGD(p, lr=0.1, momentum=0.5), lambda p: ox.optim.Adam(p, lr=0.01, eps=1e-3),
    lambda p: ox.optim.RMSprop(p, lr=0.01, eps=1e-3),
]  # fmt: skip


@rows("seed", range(36), items=3, fast=9)  # every length with and without gradients of the argument
def test_a_random_program(seed: int) -> None:
    random = np.random.default_rng(seed)
    data = [(ox.tensor(random.normal(size=SHAPE).astype(np.float32), requires_grad=seed % 4 == 1),) for _ in range(4)]
    step = step_of(seed)
    if seed % 3 == 0:
        compare(lambda: Program(State(), OPTIMIZERS[seed % 9 // 3]), step, data)
        return
    # the backward outside, and with it a plain optimizer

    def outside(program: Program) -> Any:
        inner = step(program)
        function = ox.compile(inner) if made else inner
        made.append(function)

        def run(x: ox.Tensor) -> Any:
            program.optimizer.zero_grad()
            loss, chosen = function(x)
            with ox.no_grad():
                kept = [y.detach().clone() for y in chosen]
            (loss + sum(y.mean() for y in chosen)).backward()
            program.optimizer.step()
            return loss.detach(), kept, x.grad if x.requires_grad else None

        return run

    made: list[Any] = []
    compare(lambda: Program(State(), OPTIMIZERS[seed % 9 // 3]), outside, data, compiled=lambda run: run)
