"""Sets, the containers of `collections`, and namespaces in a pickle."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ox.serialization.torch_checkpoint.errors import Budget, UnreadableError
from ox.serialization.torch_checkpoint.keys import article, key
from ox.serialization.torch_checkpoint.plain_values import TYPES
from ox.serialization.torch_checkpoint.unpickler import Allowed


def _set_of(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    def made(budget: Budget, items: Any = ()) -> Any:
        if type(items) not in (list, tuple, set):
            raise UnreadableError(f"a set of {article(items)}")
        budget.take(100 * len(items))
        return kind([key(budget, item) for item in items])

    return made


def _ordered(budget: Budget, pairs: Any = ()) -> Any:
    budget.take(150 * len(pairs))
    if not all(type(pair) in (list, tuple) and len(pair) == 2 and type(pair[0]) is str for pair in pairs):
        raise UnreadableError("an OrderedDict of something else than pairs with a name")
    return OrderedDict(pairs)


def _counter(budget: Budget, counts: Any = None) -> Any:
    if type(counts) is not dict:
        raise UnreadableError("a Counter of something else than a dict")
    budget.take(150 * len(counts))
    return Counter(counts)


def _default(budget: Budget, factory: Any = None) -> Any:
    """With the classes alone that are called without arguments and make an empty value: a function is never kept."""
    plain = type(factory) is type and factory in TYPES.values()
    if type(factory) is Allowed and factory.name in _FACTORIES:
        factory, plain = _FACTORIES[factory.name], True
    if factory is not None and not plain:
        raise UnreadableError(
            f"a defaultdict of {article(factory)}",
            expected="one of list, dict, set, int, float, str, bool, tuple, OrderedDict, Counter, defaultdict, deque",
            hint="where it was saved: dict(values)",
        )
    budget.take(240)
    return defaultdict(factory)


def _deque(budget: Budget, items: Any = (), longest: Any = None) -> Any:
    if items not in ((), []) or not (longest is None or (type(longest) is int and 0 <= longest < 2**63)):
        raise UnreadableError("a deque that is none")
    budget.take(760)
    return deque(maxlen=longest)


def _namespace(budget: Budget) -> Namespace:
    budget.take(200)
    return Namespace()


def _simple_namespace(budget: Budget, values: Any = None) -> SimpleNamespace:
    if values is not None:
        raise UnreadableError("a SimpleNamespace that is none")
    budget.take(200)
    return SimpleNamespace()


_FACTORIES: dict[str, Any] = {
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "collections.defaultdict": defaultdict,
    "collections.deque": deque,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "builtins.set": _set_of(set),
    "builtins.frozenset": _set_of(frozenset),
    "collections.OrderedDict": _ordered,
    "collections.Counter": _counter,
    "collections.defaultdict": _default,
    "collections.deque": _deque,
    "argparse.Namespace": _namespace,
    "types.SimpleNamespace": _simple_namespace,
}
