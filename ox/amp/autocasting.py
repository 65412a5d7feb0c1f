"""Autocast: regions in which operators run in the element type that the policy names. `torch.autocast`.

A region puts an `Active` into the switches of this context (`ox.core.mode`); the choke point of the operators asks it
for the inputs. What it gives back went through the operator Cast, so a cast has a gradient, and a recording holds it.
"""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ox.amp.cpu_gain import warn_without_gain
from ox.amp.policy import ELIGIBLE, KEEP, LOWER, WIDEST, Rules, rules
from ox.core import operator
from ox.core.mode import MODE, switch_mode, with_changes
from ox.core.node import Leaf
from ox.core.operator import OPS
from ox.core.tensor import is_tensor
from ox.devices import cuda
from ox.dtypes import HALF_TYPES, DType, bfloat16, float16, float32, onnx_type, promote
from ox.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from ox.core.tensor import TensorBase

DEVICES = ("cpu", "cuda")
NAME = re.compile(rf"({'|'.join(DEVICES)})(?::[0-9]+)?")


class Cache:
    """Parameters that were cast in the outermost region: a leaf is cast once, not once a use.

    Kept is the array. Each use gets a tensor of its own with a history of its own, if it wants one: so what was cast
    under `no_grad` serves where a gradient is wanted, two backwards may go through one cast, and the gradients of
    several uses add up in float32.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int, DType], tuple[Any, int, Any, TensorBase, Any]] = {}

    def cast(self, x: TensorBase, dtype: DType) -> TensorBase:
        mode = MODE.get()
        key = id(x), dtype
        entry = self._entries.get(key)
        if entry is not None:
            alive, version, memory, kept, recording = entry
            if alive() is x and version == x.version and memory is x.array and recording is mode.recording:
                made = operator.make_tensor(kept.array)
                made._recorded = kept._recorded
                if mode.grad:
                    to = OPS["Cast"]
                    node = to._add_node((x,), {"to": onnx_type(dtype)}, (made,), 1)
                    if mode.observer is not None:
                        mode.observer.on_node(node)
                return made
        made = _cast(x, dtype)
        kept = operator.make_tensor(made.array)
        kept._recorded = made._recorded
        entries = self._entries
        alive = weakref.ref(x, lambda _: entries.pop(key, None))
        entries[key] = alive, x.version, x.array, kept, mode.recording
        return made

    def clear(self) -> None:
        self._entries.clear()


def _cast(x: TensorBase, dtype: DType) -> TensorBase:
    return OPS["Cast"](x, to=onnx_type(dtype))


class Active:
    """What `Operator.__call__` uses inside a region: the table of each device that has one, and the casts so far."""

    def __init__(self, cpu: Rules | None, cuda: Rules | None, cache: Cache | None) -> None:
        self.cpu, self.cuda, self.cache = cpu, cuda, cache

    def __call__(self, op: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs of a call in the types that the policy wants."""
        try:
            table = self._table(inputs)
            plan = None if table is None else table.casts(op, inputs)
        except AttributeError:  # an array, not a tensor
            inputs = tuple([x if x is None else operator.as_input(x) for x in inputs])
            table = self._table(inputs)
            plan = None if table is None else table.casts(op, inputs)
        if plan is None:
            return inputs
        made = list(inputs)
        for i, dtype in plan:
            made[i] = self.cast(made[i], dtype)
        return tuple(made)

    def _table(self, inputs: Any) -> Rules | None:
        """The table of the device that a call runs on: a GPU, as soon as one input is there."""
        if self.cuda is None and self.cpu is not None and not cuda_arrays():
            return self.cpu
        on_gpu = any(x is not None and not isinstance(x.array, ndarray) for x in inputs)
        return self.cuda if on_gpu else self.cpu

    def cast(self, x: TensorBase, dtype: DType) -> TensorBase:
        """The tensor in another type; a leaf's cast to a lower one is remembered."""
        if self.cache is not None and type(x.node) is Leaf and x._base is None and x.array.dtype == float32:
            return self.cache.cast(x, dtype)
        return _cast(x, dtype)

    def function(self, name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function of the table: its tensors cast; autocast off inside, but for LOWER."""
        tensors = [x for x in (*args, *kwargs.values()) if is_tensor(x)]
        table = self._table(tensors)
        rule = KEEP if table is None else table.table.get(name, KEEP)
        if table is None or rule == KEEP:
            return function(*args, **kwargs)
        if rule == WIDEST:
            kinds = [x.array.dtype for x in tensors if x.array.ndim and x.array.dtype in ELIGIBLE]
            wide = reduce(promote, kinds) if kinds else None
        else:
            wide = table.dtype if rule == LOWER else float32

        own = getattr(function, "of_halves", None) if rule != LOWER and wide == float32 else None
        if own is not None:
            with switch_mode(autocast=None):
                made = own(*args, **kwargs)
            if made is not None:
                return made

        def fit(x: Any) -> Any:
            if wide is None or not is_tensor(x) or x.array.dtype not in ELIGIBLE or x.array.dtype == wide:
                return x
            return self.cast(x, wide)

        args, kwargs = [fit(x) for x in args], {key: fit(x) for key, x in kwargs.items()}
        if rule == LOWER:
            return function(*args, **kwargs)
        with switch_mode(autocast=None):
            return function(*args, **kwargs)


@contextmanager
def own_cache() -> Iterator[None]:
    """In this block nothing that was cast before is remembered, and nothing of it afterwards: for a recording."""
    state, active = STATE.get(), MODE.get().autocast
    if active is None:
        yield
        return
    cache = Cache()
    token = STATE.set(replace(state, cache=cache))
    try:
        with switch_mode(autocast=Active(active.cpu, active.cuda, None if active.cache is None else cache)):
            yield
    finally:
        STATE.reset(token)


def cuda_arrays() -> bool:
    """Whether there can be arrays on a GPU."""
    from ox.devices import cuda_state

    return cuda_state.in_use


@dataclass(frozen=True)
class State:
    """What `get_autocast_dtype` and its like answer here. `on` holds the devices of which a region is on."""

    dtypes: Mapping[str, DType] = field(default_factory=lambda: {"cpu": bfloat16, "cuda": float16})
    on: frozenset[str] = frozenset()
    policies: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    cache_enabled: bool = True
    cache: Cache | None = None  # of the outermost region
    outer: State | None = None
    before: Active | None = None  # the active region when this one began

    def active(self) -> Active | None:
        """What the choke point is to ask; None where nothing is on."""
        if not self.on:
            return None
        cpu, gpu = (
            rules(self.dtypes[d], self.policies.get(d, ())) if d in self.on else None for d in DEVICES
        )  # fmt: skip
        return Active(cpu, gpu, self.cache if self.cache_enabled else None)


STATE: ContextVar[State] = ContextVar("ox_autocast", default=State())  # noqa: B039 (frozen)


def _put(state: State) -> None:
    STATE.set(state)
    MODE.set(with_changes(MODE.get(), {"autocast": state.active()}))


def known_device(device_type: Any) -> str:
    """ "cpu" or "cuda", of a name that may have a number behind: "cuda:0". Raises ArgumentError."""
    kind = _kind(device_type)
    if kind is None:
        raise ArgumentError(
            f"autocast has no device {device_type!r}", expected='"cpu" or "cuda"',
            hint="x.device.type for that of a tensor",
        )  # fmt: skip
    return kind


def _kind(device_type: Any) -> str | None:
    found = NAME.fullmatch(device_type) if isinstance(device_type, str) else None
    return None if found is None else found[1]


def lower_type(dtype: Any) -> DType:
    """The element type of ox, also of its name or NumPy's class, if autocast can lower to it. Raises DTypeError."""
    for own in HALF_TYPES:
        if own == dtype:
            return own
    raise DTypeError(f"autocast does not lower to {dtype}", expected="ox.bfloat16 or ox.float16")


class autocast:
    """``with ox.autocast("cpu"):``, or as a decorator: operators on that device run in the type that the policy names,
    products in the lower one. `torch.autocast`.

    The outermost region remembers the lowered parameters until its end. Backward runs each operator's gradient in the
    type in which its forward ran, inside a region and outside. Regions nest, and belong to this context (thread or
    task).

    Args:
        device_type: "cpu" or "cuda", or with an index ("cuda:0"), which is ignored; operators on the
            other device are left alone.
        dtype: the lower type, ox.bfloat16 or ox.float16; default `get_autocast_dtype`: bfloat16 on the CPU, float16 on
            cuda.
        enabled: False makes a region in which nothing is cast.
        cache_enabled: whether parameters are cast once; default as around it.
        policy: changes to the table `ox.amp.policy` for this region: names of operators ("Softmax") or functions
            ("mse_loss") with "lower", "float32", "widest" or "keep".

    Raises:
        ArgumentError: another device, or a policy that is no dict or of names or rules that there are not.
        DTypeError: another lower type.
        DeviceError: bfloat16 on a GPU that lacks it.

    On "cuda" without a GPU it warns and does nothing, as PyTorch's does. On a CPU that multiplies the lower type no
    faster than float32 it warns, once, and does what it was asked for. On a GPU without products of bfloat16 (compute
    capability below 8.0) it raises DeviceError for that type.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
        *,
        policy: Mapping[str, str] | None = None,
    ) -> None:
        self.device = known_device(device_type)
        self.fast_dtype = lower_type(STATE.get().dtypes[self.device] if dtype is None else dtype)
        self._cache_enabled = cache_enabled
        if not isinstance(policy, Mapping | None):
            raise ArgumentError(
                "autocast's policy is a dict", got=type(policy).__name__,
                expected='names with rules, {"Softmax": "lower"}',
            )  # fmt: skip
        self._policy = tuple(sorted((policy or {}).items()))
        rules(self.fast_dtype, self._policy)  # names what it does not know here rather than at the first operator
        if enabled and self.device == "cuda" and not cuda.available():
            warnings.warn("CUDA is not available. Disabling autocast.", stacklevel=2)
            enabled = False
        if enabled and self.device == "cuda" and self.fast_dtype == bfloat16:
            cuda.check_bfloat16("ox.autocast('cuda', ox.bfloat16)")
        self._enabled = enabled

    def __enter__(self) -> autocast:
        now, own = STATE.get(), self.device
        if self._enabled and own == "cpu":
            warn_without_gain(self.fast_dtype)
        _put(
            replace(
                now,
                dtypes={**now.dtypes, own: self.fast_dtype},
                on=now.on | {own} if self._enabled else now.on - {own},
                policies={**now.policies, own: self._policy},
                cache_enabled=now.cache_enabled if self._cache_enabled is None else self._cache_enabled,
                cache=now.cache or Cache(),
                outer=now,
                before=MODE.get().autocast,
            )
        )
        return self

    def __exit__(self, *error: object) -> None:
        now = STATE.get()
        if now.outer is None:
            return
        if now.outer.cache is None and now.cache is not None:
            now.cache.clear()
        STATE.set(now.outer)
        MODE.set(with_changes(MODE.get(), {"autocast": now.before}))

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return decorated


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` supports the device. `torch.amp.is_autocast_available`."""
    return _kind(device_type) is not None


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether a region is active here, of "cuda" by default. `torch.is_autocast_enabled`."""
    return known_device(device_type) in STATE.get().on


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Switch autocast on or off, until the region around ends. `torch.set_autocast_enabled`."""
    own, now = known_device(device_type), STATE.get()
    _put(replace(now, on=now.on | {own} if enabled else now.on - {own}))


def get_autocast_dtype(device_type: str) -> DType:
    """The lower type here. `torch.get_autocast_dtype`."""
    return STATE.get().dtypes[known_device(device_type)]


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """The lower type from now on, until the region around ends. `torch.set_autocast_dtype`."""
    own, now = known_device(device_type), STATE.get()
    _put(replace(now, dtypes={**now.dtypes, own: lower_type(dtype)}))


def is_autocast_cache_enabled() -> bool:
    """Whether lowered parameters are remembered here. `torch.is_autocast_cache_enabled`."""
    return STATE.get().cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Remember lowered parameters or not, until the region around ends. `torch.set_autocast_cache_enabled`."""
    _put(replace(STATE.get(), cache_enabled=enabled))


def clear_autocast_cache() -> None:
    """Forget the lowered parameters. `torch.clear_autocast_cache`."""
    cache = STATE.get().cache
    if cache is not None:
        cache.clear()
