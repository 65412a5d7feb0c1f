"""ONNX's node cases of every operator: with the NumPy kernels, and again as ONNX Runtime sessions."""

from __future__ import annotations

import known
import numpy as np
import pytest
from node_cases import Case, cases, collected, failures, operators, wrong

from ox import devices
from ox.dtypes import FLOATS, INTEGERS, bfloat16, float32, float64, int64, is_floating, uint64
from ox.ops.operator import OPS
from ox.tolerance import compare


@pytest.mark.parametrize("name", operators())
def test_numpy(name: str) -> None:
    with devices.forced("numpy"):
        bad, ran, _ = failures(name, known.NUMPY)
    assert not bad, "\n".join(bad)
    assert ran or not collected().get(name), f"onnx has cases for {name}, and none could be run"


@pytest.mark.parametrize("name", operators())
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
        schema = OPS[name].schema
        moved = [x if x is None or schema.input_at(i).host else cuda.to_device(x) for i, x in enumerate(case.inputs)]
        got = tuple(devices.cpu(y.data) for y in case.call(moved))
        if problem := wrong(case, got):
            bad.append(f"{case.name}: {problem}")
    assert not bad, "\n".join(bad)


def sweep(name: str) -> list[str]:
    """The cases again in every element type that the operator takes: what differs from the widest type.

    The kernel in float16 must give what float64 gives, in int8 what int64 gives, within the tolerance table. An
    operator's cases are mostly float32, so without this a type could be declared and not work.
    """
    op, bad = OPS[name], []
    taken = [c for c in cases(name)[0] if c.inputs and not _foreign(c)][:8]
    for case in taken:
        variable = op.schema.input_at(0).type
        group = [i for i, x in enumerate(case.inputs) if x is not None and op.schema.input_at(i).type == variable]
        if variable not in op.schema.types or op.schema.input_at(0).host:
            continue
        for dtype in op.schema.types[variable]:
            if (is_floating(dtype) != is_floating(case.inputs[0].dtype)) or dtype == np.bool_:
                continue  # the values of a case suit its own kind
            narrow = list(case.inputs)
            wide = list(case.inputs)
            for i in group:
                narrow[i] = _clip(case.inputs[i], dtype)
                wide[i] = narrow[i].astype(float64 if is_floating(dtype) else uint64 if dtype == uint64 else int64)
            if wide[0].dtype not in op.schema.types[variable]:
                continue
            for i, (got, expected) in enumerate(zip(case.call(narrow), case.call(wide), strict=True)):
                follows = op.schema.output_types[min(i, len(op.schema.output_types) - 1)] == variable
                rounded = expected.data.astype(dtype) if follows else expected.data
                difference = compare(got.data, rounded)
                if not difference.ok and not _beyond(expected.data, dtype):
                    bad.append(
                        f"{case.name} in {dtype}: output {i} {got.data.dtype} {list(got.data.shape)} is off by"
                        f" {difference.max_abs:.3g}, allowed {difference.allowed:.3g}"
                    )
    return bad


def _foreign(case: Case) -> bool:
    return case.inputs[0] is None or case.inputs[0].dtype not in (*FLOATS, *INTEGERS)


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


@pytest.mark.parametrize("name", operators())
def test_every_element_type(name: str) -> None:
    with devices.forced("numpy"):
        bad = sweep(name)
    assert not bad, "\n".join(bad)
