"""Everything that a training step changes: by name, written and read as arrays, and put back at the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.generator import default_generator
from ox.core.mode import MODE
from ox.core.operator import make_tensor
from ox.core.promotion import cast
from ox.dtypes import float64, is_floating
from ox.errors import ArgumentError, ExportError
from ox.export.training_step.layout import RANDOM_COUNTER, RANDOM_KEY, RATE
from ox.graph.ir import Array
from ox.nn.base.module import Module
from ox.optim.lbfgs import LBFGS
from ox.optim.optimizer import Optimizer
from ox.optim.sgd import SGD
from ox.optim.sparse_adam import SparseAdam
from ox.random import fork_rng
from ox.tensors.tensor import Tensor


@dataclass
class TrainingState:
    """The tensors of a model and its optimizer by the names that they have in a file.

    Attributes:
        fixed: parameters that are not trained.
        parameters: those that are.
        optimizer_state: ``<parameter>.<name of the optimizer>``, such as ``head.weight.exp_avg``.
    """

    modules: Mapping[str, Module]  # by the prefix of their names
    optimizer: Optimizer
    fixed: dict[str, Tensor]
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    optimizer_state: dict[str, Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What the step may change, but for the random state."""
        return {**self.parameters, **self.buffers, **self.optimizer_state}

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each input that goes on as an output."""
        kinds = ((self.parameters, "parameter"), (self.buffers, "buffer"), (self.optimizer_state, "optimizer"))
        named = {name: kind for tensors, kind in kinds for name in tensors}
        return {**named, RANDOM_KEY: "random", RANDOM_COUNTER: "random"}

    @property
    def rates(self) -> dict[str, float]:
        """The learning rate of each group: ``lr``, or ``lr.0``, ``lr.1`` ... where there are several."""
        groups = self.optimizer.param_groups
        names = [RATE] if len(groups) == 1 else [f"{RATE}.{i}" for i in range(len(groups))]
        return {name: float(group["lr"]) for name, group in zip(names, groups, strict=True)}

    def arrays(self) -> dict[str, Array]:
        """Copies of what the step may change, the random state too."""
        now = {**self.tensors, RANDOM_KEY: default_generator.key, RANDOM_COUNTER: default_generator.counter}
        return {name: np.array(tensor.array) for name, tensor in now.items()}

    def put(self, given: Mapping[str, Tensor]) -> None:
        """Give every tensor of the state the value of the one in `given` with its name, and the groups their rates."""
        overwrite(self.tensors, given)
        with no_grad():
            for name, group in zip(self.rates, self.optimizer.param_groups, strict=True):
                rate = given[name]
                group.tensors["lr"].assign(cast(rate, float64), "save_step")
                dict.__setitem__(group, "lr", float(rate.array))
        default_generator.key, default_generator.counter = given[RANDOM_KEY], given[RANDOM_COUNTER]

    def load(self, arrays: Mapping[str, Array]) -> None:
        """The same from arrays."""
        self.put({name: make_tensor(np.array(array)) for name, array in arrays.items()})


def state_of(modules: Mapping[str, Module], optimizer: Optimizer) -> TrainingState:
    """The state of modules and their optimizer, whose own is made where it is made in the first step.

    Raises:
        ExportError: an optimizer with state that no graph has.
        ArgumentError: a parameter that no module has, on another device than the CPU, or of a 16-bit type; none is
            trained.
    """
    named = {f"{prefix}{name}": p for prefix, module in modules.items() for name, p in module.named_parameters()}
    buffers = {f"{prefix}{name}": b for prefix, module in modules.items() for name, b in module._dense_buffers()}
    for name, tensor in {**named, **buffers}.items():
        if str(tensor.device) != "cpu":
            raise ArgumentError(
                f"'{name}' is on {tensor.device}", expected="a model on the CPU, where the file is proven",
                hint="model.cpu() before the optimizer is made",
            )  # fmt: skip
        if is_floating(tensor.array.dtype) and tensor.array.dtype.itemsize < 4:
            raise ArgumentError(
                f"'{name}' is {tensor.array.dtype}, in which no common runtime trains", expected="float32",
                hint="model.float() before the optimizer is made, and ox.autocast in forward for 16-bit products",
            )  # fmt: skip
    known = {id(p): name for name, p in named.items()}
    trained: dict[str, Tensor] = {}
    state: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            if id(p) not in known:
                raise ArgumentError(
                    "the optimizer trains a parameter that the model does not have",
                    expected="an optimizer made of model.parameters()", got=f"one of shape {list(p.static_shape)}",
                )  # fmt: skip
            if not p.requires_grad:
                continue
            name = known[id(p)]
            trained[name] = p
            state |= {f"{name}.{key}": tensor for key, tensor in _optimizer_state(optimizer, p, group, name).items()}
    if not trained:
        raise ArgumentError("the optimizer trains no parameter of the model", hint="requires_grad_(True)")
    fixed: dict[str, Tensor] = {name: p for name, p in named.items() if name not in trained}
    return TrainingState(modules, optimizer, fixed, trained, buffers, state)


def check_recordable(optimizer: Any) -> None:
    """Raise ArgumentError for what is no optimizer, ExportError for one whose step cannot be a graph."""
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError("this is no optimizer", expected="one of ox.optim", got=name)
    if isinstance(optimizer, LBFGS):
        raise ExportError(f"a step of {name} depends on values, and cannot be a graph", hint="Adam, AdamW or SGD")
    if isinstance(optimizer, SparseAdam):
        raise ExportError(
            f"{name} takes sparse gradients, which cannot be a graph",
            hint="Adam, and an Embedding with sparse=False",
        )


def _optimizer_state(optimizer: Optimizer, p: Tensor, group: Any, name: str) -> dict[str, Tensor]:
    """The optimizer's tensors of a parameter; those that are missing are made as the first step makes them."""
    if isinstance(optimizer, SGD) and group["momentum"] and group["dampening"]:
        held = optimizer.state.get(p, {}).get("momentum_buffer")
        if held is None or optimizer._first(held, group):
            raise ExportError(
                "the first step of SGD with dampening differs from the others, so no graph is right for all",
                hint="dampening=0, or one step before save_step",
            )
    state = optimizer.state.get(p, {})
    made = optimizer._initial(p, group)
    optimizer.state[p] = {**made, **{key: value for key, value in state.items() if value is not None}}
    numbers = [key for key, value in optimizer.state[p].items() if not isinstance(value, Tensor)]
    if numbers:
        raise ExportError(
            f"{type(optimizer).__name__} keeps '{numbers[0]}' of '{name}' as a Python value, which no graph counts",
            expected="state of tensors",
            got=type(optimizer.state[p][numbers[0]]).__name__,
        )
    return dict(optimizer.state[p])


def overwrite(tensors: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Give every tensor the value of the one in `given` with its name."""
    if MODE.get().recording is not None:
        gc.collect()  # as before, for what the runs since then made
    with no_grad():
        for name, tensor in tensors.items():
            tensor.assign(given[name], "save_step")


@contextmanager
def put_back(modules: Mapping[str, Module], optimizer: Optimizer) -> Iterator[None]:
    """Whatever a block does to modules, optimizer and the random state: afterwards they are what they were."""
    every = [module for root in modules.values() for module in root.modules()]
    modes = [module.training for module in every]
    tensors = [t for root in modules.values() for _, t in [*root.named_parameters(), *root._dense_buffers()]]
    groups = [dict(group) for group in optimizer.param_groups]
    tensors += [t for group in optimizer.param_groups for t in group.tensors.values()]
    states = {p: dict(state) for p, state in optimizer.state.items()}
    tensors += [t for state in states.values() for t in state.values() if isinstance(t, Tensor)]
    kept = [
        (t, t.array, t.array.copy(), t.grad, t._writes and list(t._writes), t.requires_grad)
        for t in {id(t): t for t in tensors}.values()
    ]
    try:
        with fork_rng():
            yield
    finally:
        for t, memory, array, grad, version, follows in kept:
            memory[...] = array
            t.array, t.grad = memory, grad
            if t._writes is not None:
                t._writes[:] = version or [0, ""]
            if t.is_leaf:
                t.requires_grad = follows
        optimizer.state.clear()
        optimizer.state.update(states)
        for group, entries in zip(optimizer.param_groups, groups, strict=True):
            dict.update(group, entries)
        for module, training in zip(every, modes, strict=True):
            object.__setattr__(module, "training", training)


def freeze(modules: Mapping[str, Module], patterns: tuple[str, ...]) -> None:
    """Let parameters whose names match be no longer trained, and put modules in eval mode of which no parameter is.

    Args:
        patterns: names of parameters or modules; ``*`` and ``?`` stand for any characters, as in a shell.

    Raises:
        ArgumentError: a pattern that fits no parameter, or patterns that leave nothing to train.
    """
    named = {f"{prefix}{name}": p for prefix, module in modules.items() for name, p in module.named_parameters()}
    frozen: set[int] = set()
    for pattern in patterns:
        found = [p for name, p in named.items() if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not found:
            raise ArgumentError(
                f"freeze '{pattern}' fits no parameter", expected="a name of " + _some(list(named)),
                hint="a module's name freezes its parameters; * stands for any characters",
            )  # fmt: skip
        frozen |= {id(p) for p in found}
    if patterns and all(id(p) in frozen for p in named.values() if p.requires_grad):
        raise ArgumentError(
            "freeze leaves no parameter to train",
            got=", ".join(patterns),
            expected=f"some of {_some(list(named))} left",
        )
    for p in named.values():
        if id(p) in frozen:
            p.requires_grad = False
    for root in modules.values():
        for module in root.modules():
            own = list(module.parameters())
            if own and all(id(p) in frozen for p in own):
                for inside in module.modules():
                    object.__setattr__(inside, "training", False)


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
