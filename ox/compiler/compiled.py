"""A function whose calls are recorded once for each kind of call, and then run as graphs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial, update_wrapper
from threading import RLock
from types import MethodType
from typing import Any
from weakref import WeakSet

from ox.amp.autocasting import STATE
from ox.call_site import users_place
from ox.compiler.dynamic import Sizes, changed_part, sizes_left_out
from ox.compiler.execution.engines import engine_of
from ox.compiler.execution.plan import SHARED, Plan
from ox.compiler.explanation import Explanation
from ox.compiler.module_call import ForwardCall, ModuleCall
from ox.compiler.recording.capture import Reason
from ox.compiler.recording.trace import record
from ox.compiler.signature import Unusual, describe, sharing
from ox.compiler.submodules import Parts
from ox.core.changes import CHANGES
from ox.core.mode import MODE, switch_mode
from ox.core.mt19937.switch import torch_compatible
from ox.devices.heap import trim_heaps
from ox.dtypes import get_default_dtype
from ox.errors import ArgumentError, CompileError, OxError
from ox.nn.base.hooks import GLOBAL_HOOKS
from ox.nn.base.module import Module
from ox.tensors.tensor import Tensor

LOG = logging.getLogger("ox.compile")
RECOMPILE_LIMIT = 8  # recordings of one function, unless it asks for another number; PyTorch's
MOST_PLANS = 32  # kinds of calls whose recordings are kept: those that were called last
MOST_REASONS = 64  # that are counted one by one
WORTH = 100  # runs that make up for what a recording costs
NEW_SIZE = "a size is new, and recorded when it comes again"
TOO_MANY = f"more kinds of calls come again than the {MOST_PLANS} whose recordings are kept"
OTHERS = "other reasons"
CAUGHT = "an error for the values of tensors, which the code may catch"
_recording = RLock()
_PLAIN_STATE = STATE.get()
ALL: WeakSet[Compiled] = WeakSet()  # for `ox.compiler.reset`


class Eager:
    """A kind of call that stays eager, and why."""

    used = runs = 0

    def __init__(self, reason: Reason) -> None:
        self.reason, self.tries, self.changes = reason, 1, CHANGES.count


class Compiled:
    """What `ox.compile(function)` returns. Called like the function.

    Args:
        fullgraph: raise CompileError where a call, or a part of it, would stay eager.
        dynamic: None, the default: the first size of each tensor, the batch, may change from call to call. Each size
            has a recording of its own, and they do not count to the limit. True: all sizes; False: none.
        backend: the engine; see `ox.compile`.
        options: what the engine's class is given by name.
        name: what messages call it; the function's own name by default.
        activation_memory_budget: see `ox.compile`.
        recompile_limit: recordings before calls of new kinds stay eager; 8 by default.
        repeatable: every call that is recorded is undone and run again by the engine, so that the bits of a result do
            not depend on when it was recorded: for runs that are stopped and resumed.
        part: it runs a module inside a call of another one that stays eager, which has said so.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        backend: Any = None,
        options: dict[str, Any] | None = None,
        name: str | None = None,
        recompile_limit: int | None = None,
        activation_memory_budget: float = 1.0,
        repeatable: bool = False,
        part: bool = False,
    ) -> None:
        self.chosen = {
            "fullgraph": fullgraph,
            "dynamic": dynamic,
            "backend": backend,
            "options": options,
            "name": name,
            "recompile_limit": recompile_limit,
            "activation_memory_budget": activation_memory_budget,
            "repeatable": repeatable,
        }
        self.function, self.fullgraph, self.dynamic, self.repeatable = function, fullgraph, dynamic, repeatable
        self.name = name or str(getattr(function, "__qualname__", type(function).__name__))
        self.limit, self.budget = checked_limit(recompile_limit), checked_budget(activation_memory_budget)
        self.engine = engine_of(backend, options)
        self.plans: dict[Any, list[Plan | Eager]] = {}
        self.recordings = 0
        self.sizes: dict[Any, Sizes] = {}  # by signatures without the sizes that may change
        self.last: Any = None  # what was recorded last: its signature, and that without the sizes that may change
        self.history: list[str] = []
        self.tries = 0  # those in the history that gave no recording
        self.eager: dict[str, int] = {}  # how many calls stayed eager, by reason
        # What is recorded must be undone where it is to be repeatable, and an eager call cannot be.
        root = function.module if isinstance(function, ModuleCall) else None
        self.parts = None if part or repeatable else Parts(partial(_part, self.chosen), root)
        self._level = logging.INFO if part else logging.WARNING
        self._warned = part
        self._limit = ""  # why calls of new kinds stay eager, once the limit is reached
        self._wasted = 0  # recordings that others took the place of before they were of use
        self._instance: Any = None  # whose method it is
        self._objects: dict[Any, Any] = {}  # by the key that has their id, which stays their own; and the kind of call
        update_wrapper(self, function, updated=())
        self._own_attributes = frozenset(vars(self))  # what else there is, is the user's
        ALL.add(self)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method of a class: one that each instance holds; with `__slots__` the instance is an argument."""
        if instance is None:
            return self
        held = getattr(instance, "__dict__", None)
        if held is None:
            return MethodType(self, instance)
        name = f"_compiled_{id(self)}"
        found = held.get(name)
        if found is None or found._instance is not instance:  # copy.copy gives a copy what the original holds
            found = held[name] = Compiled(self.function.__get__(instance, owner), **self.chosen)
            found._instance = instance
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = MODE.get()
        if mode.recording is not None:
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        objects: list[Any] = []
        try:
            active = mode.autocast
            key = (
                tuple([describe(each, tensors, objects) for each in args]),
                None if not kwargs else tuple([(name, describe(kwargs[name], tensors, objects)) for name in kwargs]),
                mode.grad,
                mode.inference,
                None if active is None else (active.cpu, active.cuda, active.cache is None),
                None if (state := STATE.get()) is _PLAIN_STATE else (state.on, tuple(state.dtypes.items())),
                (shared := sharing(tensors)),
                get_default_dtype(),
                torch_compatible.on,
            )
            known = self.plans.get(key)
        except (Unusual, TypeError) as unusual:
            return self._run_eagerly(f"an argument holds {unusual}", args, kwargs, parts=self.parts)
        except RecursionError:
            return self._run_eagerly("an argument holds itself", args, kwargs, parts=self.parts)
        if shared is not None:  # the key says which are one: each is one input
            tensors = list({id(t): t for t in tensors}.values())
        if mode.observer is not None and not mode.observer.passive:
            return self._run_eagerly("saved-tensor hooks or anomaly detection are on", args, kwargs)
        if mode.executor is not None:
            return self._run_eagerly("an executor is forced", args, kwargs)
        if GLOBAL_HOOKS.count:
            return self._run_eagerly("hooks of every module are set", args, kwargs)
        reason = ""
        for plan in known or ():
            if isinstance(plan, Eager):
                if plan.tries < 3 and plan.changes != CHANGES.count:
                    continue  # a hook may be gone
                return self._run_eagerly(str(plan.reason), args, kwargs, said=True, parts=self.parts)
            found = plan.broken(tensors)
            if found is None:
                try:
                    return plan(tensors)
                except OxError:
                    if not plan.trace.catches:
                        raise
                return self._run_eagerly(CAUGHT, args, kwargs)
            if found is SHARED:
                return self._run_eagerly(found, args, kwargs)
            reason = reason or found
        if known is None and self._wasted >= MOST_PLANS:
            return self._run_eagerly(TOO_MANY, args, kwargs, parts=self._parts_of_eager())
        return self._record(key, args, kwargs, tensors, objects, reason)

    # -- recording ---------------------------------------------------------------------------------------------

    def _record(self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], objects: list[Any], reason: str) -> Any:
        with _recording:
            for plan in self.plans.get(key, ()):  # another thread may have recorded meanwhile
                if isinstance(plan, Plan) and plan.broken(tensors) is None:
                    return plan(tensors)
            kind = sizes_left_out(key, tensors, self.dynamic)
            sizes = self.sizes.get(kind) or Sizes()
            counts = len(self.plans.get(key, ())) >= sizes.most  # not, where another size has as many recordings
            parts = self._parts_of_eager()
            if counts and self.recordings >= self.limit:
                if not self._limit:
                    self._reach_limit(reason or self._changed(key, kind))
                return self._run_eagerly(self._limit, args, kwargs, parts=parts)
            self.sizes[kind] = sizes
            if not (self.fullgraph or self.repeatable) and sizes.waits(key, key in self.plans):
                return self._run_eagerly(NEW_SIZE, args, kwargs, said=True, parts=parts)
            known = self.plans.setdefault(key, [])
            self._make_room(key)
            self._objects[key] = kind, objects
            again = next((each for each in known if isinstance(each, Eager)), None)
            if again is not None:
                reason = f"before, it stayed eager: {again.reason}"
            elif not reason:
                reason = "it was called first" if self.last is None else self._changed(key, kind)
            changes = CHANGES.count  # a hook of a lazy module is gone behind its first call
            with switch_mode(observer=None):  # a passive one, of a profiler
                how = self.fullgraph, self.repeatable, not self.history
                result, trace = record(self.function, args, kwargs, tensors, objects, *how)
            self.recordings += counts
            sizes.recorded, sizes.most = sizes.recorded + 1, sizes.most + counts
            self.last = key, kind
            self.history.append(reason)
            if not isinstance(trace, Reason):
                try:
                    plan = Plan(trace, self.engine, reason, self.budget)
                    known[:] = [plan, *[each for each in known if each is not again]]
                    LOG.info("ox.compile: %s is recorded because %s", self.name, reason)
                    if self.repeatable:
                        trace.restore()
                    trace.release()
                    trim_heaps()  # the memory of the eager call is of no use to later ones
                    if self.repeatable:
                        if plan.broken(tensors) is None:
                            return plan(tensors)
                        return self.function(*args, **kwargs)
                    return result
                except OxError as error:
                    if self.fullgraph:
                        trace.restore()
                    trace = Reason(f"{self.engine.name} cannot run it: {error.what}", error.where or "")
                    if self.fullgraph:
                        raise CompileError(trace.text, where=trace.where) from error
            self.tries += 1
            self._note_eager(known, again, trace, changes)
            return result

    def _note_eager(self, known: list[Plan | Eager], again: Eager | None, reason: Reason, changes: int) -> None:
        """The call was not recorded; the next one is tried again if Python state may have been created in this one."""
        if reason.again and again is None:
            known.append(Eager(reason))
            known[-1].changes = -1  # type: ignore[union-attr]
            LOG.info("ox.compile: %s is recorded again at the next call, for %s", self.name, reason)
            return
        if again is None:
            again = Eager(reason)
            known.append(again)
        again.tries, again.changes, again.reason = again.tries + 1, changes, reason
        text = str(reason)
        if reason.again:
            again.tries = 3
            text = f"{text}, at every call"
            again.reason = Reason(text)
            if self.fullgraph:
                raise CompileError(text)
        self._count_eager(text)

    def _changed(self, key: Any, kind: Any) -> str:
        """What differs from the signature that was recorded last; sizes that may change come last."""
        last_key, last_kind = self.last
        return changed_part(last_key, key) if last_kind == kind else changed_part(last_kind, kind)

    def _parts_of_eager(self) -> Parts | None:
        """What compiles modules inside a call of a new kind; nothing where calls of other kinds run as graphs."""
        recorded = any(isinstance(each, Plan) for held in [*self.plans.values()] for each in held)
        return None if recorded else self.parts

    def _reach_limit(self, what: str) -> None:
        times = f"{self.limit} time{'s' * (self.limit > 1)}"
        self._limit = f"it was recorded {times}: {what}"
        self._warn(
            f"was recorded {times}; calls of new kinds stay eager from now on. What changed last: {what}. "
            "ox.compile(..., dynamic=True) or ox.compiler.mark_dynamic(tensor, dim) declares a "
            "size that changes; a number that changes can be a tensor"
        )
        for key, (kind, objects) in [*self._objects.items()]:  # what was an argument of one call alone is not kept
            if any(not isinstance(each, Module) for each in objects) and not any(plan.runs for plan in self.plans[key]):
                del self.plans[key], self._objects[key]
                self.sizes.pop(kind, None)  # another object may get the id

    def _warn(self, text: str) -> None:
        """Say once, at the user's line, that calls of new kinds stay eager."""
        if not self._warned:
            self._warned = True
            file, line = users_place() or (__file__, 0)
            warnings.warn_explicit(f"{self.name} {text}", UserWarning, file, line)

    def _make_room(self, key: Any) -> None:
        """Forget the signatures that were not called for the longest time, save for this one."""
        while len(self.plans) > MOST_PLANS:
            others = [each for each in self.plans if each != key]
            oldest = min(others, key=lambda each: max((plan.used for plan in self.plans[each]), default=0))
            gone = self.plans.pop(oldest)
            self._objects.pop(oldest, None)
            if not (self.fullgraph or self.repeatable):  # these may not stay eager
                self._wasted += sum(plan.runs < WORTH for plan in gone)
        if self._wasted >= MOST_PLANS:
            self._warn(f"is called in too many ways: {TOO_MANY}. Others stay eager from now on")

    def _count_eager(self, reason: str, said: bool = False) -> None:
        """One more call stays eager, for a reason that is said once."""
        if reason not in self.eager:
            if len(self.eager) >= MOST_REASONS:
                reason, said = OTHERS, True
            if not said:
                LOG.log(self._level, "ox.compile: %s stays eager: %s", self.name, reason)
        self.eager[reason] = self.eager.get(reason, 0) + 1

    def _run_eagerly(self, reason: str, args: Any, kwargs: Any, said: bool = False, parts: Parts | None = None) -> Any:
        self._count_eager(reason, said)
        if self.fullgraph:
            raise CompileError(reason, expected="one graph (fullgraph=True)")
        if parts is None:
            return self.function(*args, **kwargs)
        with switch_mode(parts=parts):
            return self.function(*args, **kwargs)

    def explain(self) -> Explanation:
        """What was recorded, for which calls, and what stayed eager and why; printed, it is text."""
        inside = () if self.parts is None else [*self.parts.made.values()]
        return Explanation(self.name, self.plans, self.history, self.eager, inside, self.tries)

    def reset(self) -> None:
        """Forget all recordings."""
        self.plans.clear()
        self.tries = 0
        self.history, self.recordings, self._warned = [], 0, self._level == logging.INFO
        self.sizes, self.last = {}, None
        self.eager, self._objects = {}, {}
        self._limit, self._wasted = "", 0
        if self.parts is not None:
            self.parts.forget()

    def __reduce__(self) -> Any:
        return _compiled_again, (self.function, self.chosen)


def _compiled_again(function: Any, chosen: dict[str, Any]) -> Compiled:
    return Compiled(function, **chosen)


def _part(chosen: dict[str, Any], module: Module, name: str) -> Compiled:
    """What runs a module inside a call that stays eager."""
    return Compiled(ForwardCall(module), **{**chosen, "name": name, "part": True})


def checked_limit(recompile_limit: int | None) -> int:
    """How often a function may be recorded. Raises ArgumentError for what is no count."""
    if recompile_limit is None:
        return RECOMPILE_LIMIT
    if not isinstance(recompile_limit, int) or isinstance(recompile_limit, bool) or recompile_limit < 1:
        raise ArgumentError("recompile_limit is no count", got=repr(recompile_limit), expected="1, 2, ... or None")
    return recompile_limit


def checked_budget(budget: float) -> float:
    """A share. Raises ArgumentError for what is none."""
    if not isinstance(budget, int | float) or not 0 <= budget <= 1:
        raise ArgumentError("activation_memory_budget is no share", got=repr(budget), expected="0 to 1")
    return float(budget)


def compiled_module_call(module: Any, options: dict[str, Any]) -> Compiled | None:
    """What runs a module that is compiled in place; None with ``disable=True``. See `ox.compile` for what has no
    effect."""
    chosen = {name: value for name, value in options.items() if name not in ("mode", "isolate_recompiles", "disable")}
    return None if options.get("disable") else Compiled(ModuleCall(module), **chosen)
