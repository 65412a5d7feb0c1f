"""PyTorch's OpInfo database held against ox: every operation on PyTorch's own sample inputs, in every form and type.

An operation is checked as a function, as a method, in place, under its other names and by its gradients; each check has
a name, such as ``in place int64``, and says what is different, if anything.
"""

from __future__ import annotations

import functools
import itertools
import random
import tomllib
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opinfo_sides import Ours, OutsideError, Theirs, difference, gradients, rebound
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

import ox

# The import of the database forbids all to set flags as torch.backends.cudnn.benchmark, which other tests' scripts do.
torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
FEW = ("float32", "float64", "int64", "bool")  # with a limit of samples
FIRST = 200  # of how many samples those of a limit are chosen
# Compared by shape and type only: what they give is drawn, or whatever lay in memory.
UNDETERMINED = """
bernoulli cauchy empty empty_like exponential geometric log_normal multinomial new_empty nn.functional.alpha_dropout
nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout
nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.rrelu normal rand_like randint
randint_like randn randn_like uniform
""".split()  # noqa: SIM905
# What they give is free to a sign or a rotation; the database says what of it is not.
UP_TO_SIGN = frozenset(("linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank"))
# Of equal values, any one's place may be given; where dimension of the place stands among the arguments.
ANY_PLACE = {"argsort": 0, "kthvalue": 1, "median": 0, "mode": 0, "nanmedian": 0, "sort": 0, "topk": 1}
Failures = dict[str, list[str]]
COUNT: Counter[str] = Counter()  # how many samples were compared, by operation


def resolve(root: Any, path: str) -> Any:
    """What stands at a dotted path; None where there is nothing."""
    return functools.reduce(lambda x, part: getattr(x, part, None), path.split("."), root)


def counterpart(op: OpInfo) -> Callable[..., Any] | None:
    """ox's function for an operation; None where it has none."""
    function = op.op
    if isinstance(function, functools.partial) and resolve(ox, op.name):
        return functools.partial(resolve(ox, op.name), *function.args, **function.keywords)
    if isinstance(function, types.FunctionType) and function.__module__.startswith("torch.testing"):
        names = [] if op.name.endswith("_") else [op.name, f"{op.name}_"]
        there = resolve(ox, op.name) or any(hasattr(ox.Tensor, name) for name in names)
        return rebound(function) if there else None
    found = resolve(ox, op.name)
    return found or (getattr(ox.Tensor, op.name, None) if "." not in op.name else None)


@cache
def operations() -> dict[str, OpInfo]:
    """The entries of the database that ox has, by PyTorch's name for each."""
    return {op.formatted_name: op for op in op_db if counterpart(op)}


@cache
def missing() -> list[str]:
    return [op.formatted_name for op in op_db if not counterpart(op)]


def method(op: OpInfo, form: str) -> tuple[Any, Any] | None:
    """A method of PyTorch's Tensor, and ox's of the same name."""
    theirs = getattr(op, form)
    name = getattr(theirs, "__name__", "")
    if theirs is None or not hasattr(torch.Tensor, name):
        return None
    return theirs, getattr(ox.Tensor, name, None)


def samples(op: OpInfo, dtype: str, requires_grad: bool, limit: int | None) -> list[Any]:
    """The sample inputs of a type; with a limit that many, evenly spread over the first ones."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    every = op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=requires_grad)
    found = list(every if limit is None else itertools.islice(every, FIRST))
    if limit is None or len(found) <= limit:
        return found
    return [found[round(i)] for i in np.linspace(0, len(found) - 1, limit)]


def check(op: OpInfo, most: int | None = None, known: Iterable[str] = ()) -> Failures:
    """What differs from PyTorch, by check; a name with an empty list is a check that agrees. With `most` that many
    samples of few types are tried, but all of the types that the patterns of `known` exceptions speak of."""
    found: Failures = {}
    ours = counterpart(op)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            limit = None if any(_speaks_of(pattern, dtype) for pattern in known) else most
            if limit is not None and dtype not in FEW:
                continue
            if getattr(torch, dtype) not in op.supported_dtypes("cpu"):
                continue
            grad = dtype == "float64" and op.supports_autograd
            forms = [("up to sign" if op.name in UP_TO_SIGN else "function", op.op, ours), *other_forms(op, dtype)]
            for sample in samples(op, dtype, grad, limit):
                for form, theirs, own in forms:
                    if (form == "in place" and sample.broadcasts_input) or (grad and limit and form != "function"):
                        continue
                    found.setdefault(f"{form} {dtype}", []).extend(compare(op, sample, theirs, own, form))
                    if grad and form in ("function", "up to sign"):
                        found.setdefault("gradient", []).extend(compare(op, sample, theirs, own, "gradient"))
    return found


def _speaks_of(pattern: str, dtype: str) -> bool:
    names = [f"{form} {dtype}" for form in ("function", "up to sign", "method", "in place")]
    return any(fnmatch(name, pattern) for name in ([*names, "gradient"] if dtype == "float64" else names))


def other_forms(op: OpInfo, dtype: str) -> Iterator[tuple[str, Any, Any]]:
    """Methods of a type, and other names, which one type is enough for."""
    for form, pair in (("method", method(op, "method_variant")), ("in place", method(op, "inplace_variant"))):
        if pair is not None:
            yield form, *pair
    if dtype != "float32":
        return
    for alias in op.aliases:
        own = resolve(ox, alias.name)
        if own is not None and alias.op is not None:
            yield f"alias {alias.name}", alias.op, own


def compare(op: OpInfo, sample: Any, theirs: Any, ours: Any, form: str) -> Iterator[str]:
    """What differs on one sample: at most one text."""
    sides = Theirs(), Ours()
    try:
        given = [(side(sample.input), side(sample.args), side(sample.kwargs)) for side in sides]
    except OutsideError:
        return
    try:
        expected = apply(torch, op, theirs, given[0], sample, form, sides[0])
    except Exception:  # this form of PyTorch's does not take the sample
        return
    COUNT[op.formatted_name] += 1
    label = sample.summary() if hasattr(sample, "summary") else repr(sample)
    if ours is None:
        yield f"no such method: {getattr(theirs, '__name__', theirs)}"
        return
    try:
        got = apply(ox, op, ours, given[1], sample, form, sides[1])
        if op.name in ANY_PLACE and form != "gradient":
            expected, got = with_values(op, given, expected, got)
        told = difference(got, expected, determined(op, sample))
    except Exception as error:  # whatever ox raises is a difference
        told = f"{type(error).__name__}: {error}"
    if told:
        yield f"{told} | {label}"


def apply(
    package: Any, op: OpInfo, function: Any, given: tuple[Any, Any, Any], sample: Any, form: str, side: Any
) -> Any:
    """The result of one side; of the form in place with what was written, of a gradient the gradients."""
    first, args, kwargs = given
    if form == "in place":
        with package.no_grad():
            result = function(first, *args, **kwargs)
        return [result, first]
    process = sample.output_process_fn_grad or (lambda x: x)
    process = process if package is torch else rebound(process)
    if form == "gradient":
        wrapper = op.gradcheck_wrapper if package is torch else rebound(op.gradcheck_wrapper)
        return gradients(package, process(wrapper(function, first, *args, **kwargs)), side.leaves)
    with package.no_grad():
        result = function(first, *args, **kwargs)
        return process(result) if op.name in UP_TO_SIGN and form in ("up to sign", "method") else result


def determined(op: OpInfo, sample: Any) -> bool:
    """Whether two calls give the same values."""
    rate = sample.args[9] if op.name == "nn.functional.multi_head_attention_forward" else sample.kwargs.get("dropout_p")
    return op.name not in UNDETERMINED and not rate


def with_values(op: OpInfo, given: list[Any], expected: Any, got: Any) -> tuple[Any, Any]:
    """Places of ox's that show PyTorch's values are PyTorch's places."""
    (x, args, kwargs), place = given[0], ANY_PLACE[op.name]
    theirs = expected if op.name == "argsort" else expected[1] if isinstance(expected, tuple) else None
    ours = got if op.name == "argsort" else got[1] if isinstance(got, tuple) else None
    if theirs is None or ours is None or tuple(ours.shape) != tuple(theirs.shape) or not x.ndim:
        return expected, got
    dim = kwargs.get("dim", args[place] if len(args) > place else -1)
    if theirs.ndim < x.ndim:
        theirs, ours = theirs.unsqueeze(dim), ours.unsqueeze(dim)
    at = [x.detach().gather(dim, torch.from_numpy(np.array(i.numpy()))) for i in (theirs, ours)]
    if not torch.equal(torch.nan_to_num(at[0]), torch.nan_to_num(at[1])):
        return expected, got
    return ([], []) if op.name == "argsort" else (expected[:1], got[:1])


def errors(op: OpInfo) -> Iterator[tuple[str, str | None]]:
    """Each input that PyTorch refuses: what it is, and what ox does that is no refusal of its own."""
    ours: Any = counterpart(op)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        for error in error_inputs(op):
            sample, sides = error.sample_input, (Theirs(), Ours())
            if "out" in sample.kwargs:  # ox writes into nothing that is given
                continue
            try:
                given = [(side(sample.input), side(sample.args), side(sample.kwargs)) for side in sides]
            except (OutsideError, NotImplementedError, ValueError):  # no values, or more dimensions than NumPy has
                continue
            try:
                op.op(given[0][0], *given[0][1], **given[0][2])
                continue  # not refused here
            except Exception as refusal:
                text, of_types = (str(refusal).splitlines() or [""])[0], isinstance(refusal, TypeError)
            try:
                got = ours(given[1][0], *given[1][1], **given[1][2])
                if of_types:  # numbers for tensors and the like, which ox takes
                    continue
                told = f"took it, where PyTorch says: {text}; gave {got}"
            except ox.OxError:
                told = None
            except Exception as other:
                python = of_types and isinstance(other, TypeError)
                told = None if python else f"{type(other).__name__} ({other}) where PyTorch says: {text}"
            yield f"{sample.summary()}", told


def error_inputs(op: OpInfo) -> list[Any]:
    """The database's, whose `torch.empty` holds the same in each run: it is filled with NaN or the largest integer."""
    torch.use_deterministic_algorithms(True)
    try:
        return list(op.error_inputs("cpu")) if op.error_inputs_func else []
    finally:
        torch.use_deterministic_algorithms(False)


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "opinfo_exceptions.toml").read_text(encoding="utf-8"))


@cache
def exceptions(table: str = "samples") -> dict[str, dict[str, str]]:
    """By operation: patterns of checks that differ, and why."""
    found: dict[str, dict[str, str]] = {}
    for entry in _tables()[table]:
        for line in entry["names"].strip().splitlines():
            names, _, checks = line.partition(":")
            for name, each in itertools.product(names.split(), checks.split(",") if checks else ["*"]):
                found.setdefault(name, {})[each.strip()] = entry["why"]
    return found


def expected(check_name: str, known: dict[str, str]) -> str | None:
    """Why a check may differ; None where it may not."""
    return next((why for pattern, why in known.items() if fnmatch(check_name, pattern)), None)


def met(pattern: str, failures: Failures) -> bool:
    return any(fnmatch(name, pattern) for name in failures)


def patterns_of_missing() -> dict[str, str]:
    return {pattern: entry["why"] for entry in _tables()["missing"] for pattern in entry["names"].split()}


def why_missing(name: str) -> str | None:
    return next((why for pattern, why in patterns_of_missing().items() if fnmatch(name, pattern)), None)
