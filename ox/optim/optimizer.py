"""Optimizer: parameter groups, state, and the two ways of an update."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from ox.core.mode import MODE, switch_mode
from ox.core.operator import as_input, make_tensor
from ox.devices import cuda_state
from ox.dtypes import DType, float32, is_floating
from ox.errors import ArgumentError, GradientError, LoadError, RecordError
from ox.optim.group import Group
from ox.optim.hooks import Hooked
from ox.sparse.creation import cleared
from ox.sparse.tensor import SparseTensor
from ox.tensors.tensor import Tensor

ParamsT = params_t = Iterable[Tensor] | Iterable[dict[str, Any]]
required: Any = type(
    "required", (), {"__repr__": lambda self: "<required parameter>"}
)()  # the placeholder for required settings in old optimizers
NOT_NEGATIVE = frozenset(
    ["lr", "weight_decay", "momentum", "eps", "alpha", "rho", "lr_decay", "initial_accumulator_value", "momentum_decay"]
)


def options(**given: Any) -> dict[str, Any]:
    """PyTorch's options for how a step is executed. They are stored in the group and have no effect. Raises
    ArgumentError for `differentiable=True`."""
    if given.get("differentiable"):
        raise ArgumentError(
            "an optimizer's step is not differentiable",
            hint="write the update yourself, on tensors that ox.autograd.grad(..., create_graph=True) gave",
        )
    if given.get("fused") and given.get("foreach"):
        raise ArgumentError("fused and foreach exclude each other", got="both")
    return given


class Optimizer(Hooked):
    """The base: `torch.optim.Optimizer`.

    A subclass implements the update of a group twice: `_update` in operators, which a recording sees, and `_fast`, the
    same on arrays in place, which eager training uses. A test holds the two together.

    Args:
        params: tensors, (name, tensor) pairs, or dicts of a group each: ``{"params": [...], "lr": ...}``.
        defaults: settings that a group does not have.
    """

    _scalars = frozenset({"step"})  # state of no dimensions, which stays on the host

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        _refuse_unasked(type(self))
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        if isinstance(params, Tensor):
            raise ArgumentError("an optimizer takes an iterable of tensors", got="one Tensor", hint="[tensor]")
        if isinstance(params, set):
            raise ArgumentError("the parameters of an optimizer must be ordered", got="a set", hint="a list")
        groups = list(params)
        if not groups:
            raise ArgumentError(f"{type(self).__name__} got no parameters", hint="model.parameters()")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train further parameters, with settings of their own.

        Raises:
            ArgumentError: no tensors, not leaves, or in a group already; a setting out of range.
        """
        if "params" not in param_group:
            raise ArgumentError(
                "a group has no parameters",
                expected="{'params': [...], ...}",
                got=", ".join(map(repr, param_group)) or "an empty dict",
            )
        given = param_group["params"]
        named = [p if isinstance(p, tuple) else (None, p) for p in ([given] if isinstance(given, Tensor) else given)]
        unique: dict[int, tuple[Any, Any]] = {}
        for name, p in named:
            unique.setdefault(id(p), (name, p))
        if len(unique) < len(named):
            warnings.warn(
                f"{type(self).__name__}: a group has {len(named) - len(unique)} parameters twice; each is updated once "
                "in a step",
                stacklevel=4,
            )
            named = list(unique.values())
        params = [p for _, p in named]
        taken = {id(p) for group in self.param_groups for p in group["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise ArgumentError("an optimizer takes tensors", got=type(p).__name__)
            if not p.is_leaf:
                raise ArgumentError("an optimizer needs leaf tensors", got="a tensor that an operator computed")
            if id(p) in taken:
                raise ArgumentError("a parameter is in two groups", got=f"shape {list(p.static_shape)}")
            taken.add(id(p))
        names = [name for name, _ in named if name is not None]
        if any((len(names) > 0) != ("param_names" in group) for group in self.param_groups) or 0 < len(names) < len(
            params
        ):
            raise ArgumentError("either all parameters have names or none has")
        entries = {**self.defaults, **param_group, "params": params, **({"param_names": names} if names else {})}
        self._check(entries)
        self.param_groups.append(Group(entries))

    def _check(self, settings: Mapping[str, Any]) -> None:
        for name in NOT_NEGATIVE & settings.keys():
            if not isinstance(settings[name], tuple) and not float(settings[name]) >= 0:
                raise ArgumentError(f"{name} must not be negative", got=str(settings[name]))
        for beta in settings.get("betas", ()):
            if not 0 <= beta < 1:
                raise ArgumentError("betas lie in [0, 1)", got=str(settings["betas"]))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set gradients to None, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none or p.grad is None:
                    p.grad = None
                else:
                    p.grad = cleared(p.grad)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient. Returns what `closure` (run first, with gradients on) returns."""
        loss = None
        if closure is not None:
            with switch_mode(grad=True):
                loss = closure()
        recording = MODE.get().recording
        with switch_mode(grad=False):
            for group in map(_settled, self.param_groups):
                params = [p for p in group["params"] if p.grad is not None]
                for p in params:
                    if p not in self.state:
                        if recording is not None:
                            recording.on_new_state()
                        with cuda_state.at(p.array):
                            self.state[p] = self._initial(p, group)
                for p in [p for p in params if isinstance(p.grad, SparseTensor)]:
                    params.remove(p)
                    self._sparse(p, p.grad.coalesce(), self.state[p], group)
                if recording is not None and not recording.over:
                    self._record(params, group, recording)
                elif params:
                    for on_device in _by_device(params):
                        with cuda_state.at(on_device[0].array):
                            self._run(on_device, group)
        return loss

    def _run(self, params: list[Tensor], group: Group) -> None:
        """The eager update of a group."""
        self._fast(params, group)

    def _skips_on_device(self) -> bool:
        """Whether a step that is to be taken or not, as a number on the GPU says (`ox.devices.gpu.skip_flag`), needs no
        wait for that number."""
        return False

    def _record(self, params: list[Tensor], group: Group, recording: Any) -> None:
        """The updates of a group in operators. A watch of the code that runs sees the first; the others are alike."""
        for i, p in enumerate(params):
            with recording.unwatched() if i and type(self).__module__.startswith("ox.") else nullcontext():
                self._update(p, p.grad, self.state[p], group)  # type: ignore[arg-type]

    def _initial(self, p: Tensor, group: Group) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        return {}

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        """The update in operators."""
        raise ArgumentError(f"{type(self).__name__} has no update", hint="def _update(self, p, grad, state, group)")

    def _fast(self, params: list[Tensor], group: Group) -> None:
        """The same on arrays, in place."""
        for p in params:
            assert p.grad is not None
            self._update(p, p.grad, self.state[p], group)

    def _sparse(self, p: Tensor, grad: SparseTensor, state: dict[str, Any], group: Group) -> None:
        """The update for a sparse gradient, whose entries are each there once."""
        raise GradientError(
            f"{type(self).__name__} does not take sparse gradients",
            hint="SparseAdam, Adagrad or SGD, or an Embedding with sparse=False",
        )

    # -- state -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State by parameter number, and the groups with numbers for parameters: PyTorch's layout. Tensors are
        shared, not copied."""
        for hook in list(self._hooks("state_pre")):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        given = {
            "state": {numbers[id(p)]: dict(state) for p, state in self.state.items()},
            "param_groups": groups,
        }
        for hook in list(self._hooks("state_post")):
            changed = hook(self, given)
            given = given if changed is None else changed
        return given

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from `state_dict()`. State tensors are copied.

        Raises:
            LoadError: another number of groups or parameters, or state of other shapes; nothing was changed.
        """
        for hook in list(self._hooks("load_pre")):
            changed = hook(self, dict(state_dict))
            state_dict = state_dict if changed is None else changed
        groups, state = state_dict["param_groups"], state_dict["state"]
        have = [len(group["params"]) for group in self.param_groups]
        given = [len(group["params"]) for group in groups]
        if have != given:
            raise LoadError(
                f"the state does not fit {type(self).__name__}",
                expected=f"groups of {have} parameters",
                got=f"groups of {given}",
                hint="the model and the groups that the state was saved from",
            )
        pairs = zip(
            (n for group in groups for n in group["params"]),
            (p for group in self.param_groups for p in group["params"]),
            strict=True,
        )
        loaded: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, p in pairs:
            own = state.get(number, state.get(str(number)))
            if own is not None:
                loaded[p] = {name: self._copied(name, number, value, p) for name, value in own.items()}
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})
        self.__setstate__({"state": loaded, "param_groups": self.param_groups})
        for hook in list(self._hooks("load_post")):
            hook(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes that `copy`, `pickle` or `load_state_dict` give."""
        self.__dict__.update(state)

    def _cuda_graph_capture_health_check(self) -> None:
        """Nothing to check: what a `step` that was copied from PyTorch calls."""

    _accelerator_graph_capture_health_check = _cuda_graph_capture_health_check

    def _shape(self, name: str, p: Tensor) -> tuple[int, ...] | None:
        """The shape that a state tensor of this name must have; None for any."""
        return () if name in self._scalars else p.static_shape

    def _copied(self, name: str, number: int, value: Any, p: Tensor) -> Any:
        if not isinstance(value, Tensor | np.ndarray | np.generic):
            return value
        tensor = as_input(value.array if isinstance(value, Tensor) else value)
        shape, fits = tensor.static_shape, self._shape(name, p)
        if fits is not None and shape != fits:
            raise LoadError(
                f"the optimizer's state '{name}' does not fit parameter {number}",
                expected=str(list(fits)),
                got=str(list(shape)),
            )
        array = cuda_state.copy(tensor.array)
        if name in self._scalars or not is_floating(array.dtype):
            return make_tensor(array)
        copied = make_tensor(array.astype(p.array.dtype, copy=False))
        return copied if copied.device == p.device else copied.to(p.device)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {name}: {value}" for name, value in sorted(group.items()) if not name.startswith("param")]
        return "\n".join([*lines, ")"])


def _settled(group: dict[str, Any]) -> Group:
    """A group whose tensors have its numbers: also of a dict that a user put in the place of one."""
    if isinstance(group, Group):
        group.settle()
        return group
    recording = MODE.get().recording
    if recording is not None:
        recording.refuse(
            RecordError(
                "a parameter group is a plain dict, whose numbers a graph does not take in",
                hint="optimizer.param_groups[i].update(lr=...), which changes the group that is there",
            )
        )
    return Group(group)


def _refuse_unasked(cls: type) -> None:
    """Raise ArgumentError for a class that overrides PyTorch's `_init_group`, which ox's step does not call."""
    own = next(each for each in cls.__mro__ if "step" in vars(each))
    if own.__module__.startswith("ox.") and hasattr(cls, "_init_group"):
        raise ArgumentError(
            f"{cls.__name__} replaces _init_group, which {own.__name__}.step of ox does not call",
            hint="def step(self, closure=None) beside it, or _initial(p, group) for the state before the first step",
        )


def _by_device(params: list[Tensor]) -> list[list[Tensor]]:
    """The parameters of each GPU, and those of the host."""
    if not cuda_state.several:
        return [params]
    found: dict[str, list[Tensor]] = {}
    for p in params:
        found.setdefault(p.device, []).append(p)
    return list(found.values())


def narrow_or_same(p: Tensor) -> DType:
    """The type in which a parameter is updated: its own, or float32 for a half."""
    return float32 if p.array.dtype.itemsize < 4 else p.array.dtype
