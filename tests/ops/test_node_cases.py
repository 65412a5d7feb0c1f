"""ONNX's node cases of every operator: with the NumPy kernels, and again as ONNX Runtime sessions."""

from __future__ import annotations

import known
import numpy as np
import pytest
from node_cases import Case, cases, collected, failures, operators, wrong
from rows import rows

from ox import devices
from ox.core.operator import OPS
from ox.dtypes import NARROW, bfloat16, float32, float64, int64, is_floating, uint64
from ox.tolerance import compare


@rows("name", operators(), items=4)
def test_numpy(name: str) -> None:
    with devices.forced("numpy"):
        bad, ran, _ = failures(name, known.NUMPY)
    assert not bad, "\n".join(bad)
    assert ran or not collected(name), f"onnx has cases for {name}, and none could be run"


@rows("name", operators(), items=8)
def test_onnxruntime(name: str) -> None:
    with devices.forced("onnxruntime"):
        bad, _, _ = failures(name, known.ONNXRUNTIME, devices.NoKernelError)
    assert not bad, "\n".join(bad)


@pytest.mark.gpu
@pytest.mark.parametrize("name", operators())
def test_cupy(name: str) -> None:
    from ox.devices import cuda

    bad = []
    for case in cases(name)[0]:
        arrays = [x for x in (*case.inputs, *case.outputs) if x is not None and hasattr(x, "dtype")]
        if case.name in known.NUMPY or any(x.dtype in NARROW for x in arrays):  # which CuPy does not have
            continue
        schema = OPS[name].schema
        moved = [x if x is None or schema.input_at(i).host else cuda.to_device(x) for i, x in enumerate(case.inputs)]
        got = tuple(devices.cpu(y.array) for y in case.call(moved))
        if problem := wrong(case, got):
            bad.append(f"{case.name}: {problem}")
    assert not bad, "\n".join(bad)


def sweep(name: str) -> list[str]:
    """The cases again in every element type that the operator takes: what differs from the widest type.

    The kernel in float16 must give what float64 gives, in int8 what int64 gives, within the tolerance table. An
    operator's cases are mostly float32, so without this a type could be declared and not work.
    """
    op, bad = OPS[name], []
    for case in cases(name)[0][:8]:
        for variable, allowed in op.schema.types.items():
            group = [
                i
                for i, x in enumerate(case.inputs)
                if x is not None and op.schema.input_at(i).type == variable and x.dtype != np.bool_
            ]
            for dtype in allowed if group else ():
                if is_floating(dtype) == is_floating(case.inputs[group[0]].dtype) and dtype != np.bool_:
                    bad += _differing(case, variable, group, dtype)
    return bad


def _differing(case: Case, variable: str, group: list[int], dtype: np.dtype) -> list[str]:  # type: ignore[type-arg]
    """One case with the inputs of one type variable in one element type, against the widest of its kind."""
    schema = OPS[case.op].schema
    widest = float64 if is_floating(dtype) else uint64 if dtype == uint64 else int64
    if widest not in schema.types[variable]:
        return []
    narrow, wide = list(case.inputs), list(case.inputs)
    for i in group:
        narrow[i] = _clip(case.inputs[i], dtype)
        wide[i] = narrow[i].astype(widest)
    bad = []
    for i, (got, expected) in enumerate(zip(case.call(narrow), case.call(wide), strict=True)):
        follows = schema.output_types[min(i, len(schema.output_types) - 1)] == variable
        follows = follows or (case.op == "EyeLike" and "dtype" not in case.attributes)  # of its input's type by default
        with np.errstate(over="ignore"):
            rounded = expected.array.astype(dtype) if follows else expected.array
        difference = compare(got.array, rounded)
        if not difference.ok and not _beyond(expected.array, dtype):
            bad.append(
                f"{case.name} in {dtype}: output {i} {got.array.dtype} {list(got.array.shape)} is off by"
                f" {difference.max_abs:.3g}, allowed {difference.allowed:.3g}"
            )
    return bad


def _clip(x: np.ndarray, dtype: np.dtype) -> np.ndarray:  # type: ignore[type-arg]
    """The values in another type, brought near zero so that the narrow types hold them and what is made of them."""
    if is_floating(dtype):
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    low, high = (0, 11) if dtype.kind == "u" else (-11, 11)
    return np.clip(x.astype(np.int64), low, high).astype(dtype)


def _beyond(x: np.ndarray, dtype: np.dtype) -> bool:  # type: ignore[type-arg]
    """Whether the right answer is more than a narrow type holds (an exponential in float16, a product in int8)."""
    if x.dtype == np.bool_:
        return False
    largest = 3e38 if dtype in (bfloat16, float32, float64) else 65000 if is_floating(dtype) else np.iinfo(dtype).max
    with np.errstate(invalid="ignore"):
        return bool(x.size and np.nanmax(np.abs(x.astype(np.float64))) > largest) or (
            dtype.kind == "u" and bool((x.astype(np.float64) < 0).any())
        )


@rows("name", [name for name in operators() if name not in known.BY_WIDTH], items=4)
def test_every_element_type(name: str) -> None:
    with devices.forced("numpy"):
        bad = sweep(name)
    assert not bad, "\n".join(bad)
