"""The scoreboard of all 1,884 node cases of onnx: ox beside onnx.reference and ONNX Runtime. `make conformance`.

    python tests/ops/conformance.py            a line an operator, then the totals
    python tests/ops/conformance.py --failing  what ox does not pass, with the reason

A case passes when every output has the right type, shape and values, by the tolerance that onnx gives the case.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import defs, numpy_helper  # noqa: E402

from ox.core.operator import OPS  # noqa: E402

Run = Callable[[onnx.ModelProto, list[Any]], list[Any]]


def all_cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return list(collect_testcases(None))


def on_ox(model: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    from ox.graph.backend import prepare

    return list(prepare(model).run(inputs))


def on_reference(model: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    names = [i.name for i in model.graph.input]
    return list(ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=False))))


def on_onnxruntime(model: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    import onnxruntime

    lowered = onnx.ModelProto()
    lowered.CopyFrom(model)
    lowered.ir_version = min(model.ir_version, 13)  # the highest that ONNX Runtime 1.31 reads
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(lowered.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip([i.name for i in session.get_inputs()], inputs, strict=False))))


RUNTIMES: dict[str, Run] = {"ox": on_ox, "onnx.reference": on_reference, "ONNX Runtime": on_onnxruntime}


def value(given: Any) -> Any:
    """A case's input or output as an array, or a list of such."""
    if isinstance(given, onnx.TensorProto):
        return numpy_helper.to_array(given)
    if isinstance(given, onnx.SequenceProto):
        return numpy_helper.to_list(given)
    if isinstance(given, onnx.OptionalProto):
        return numpy_helper.to_optional(given)
    return given


def problem(case: Any, run: Run) -> str | None:
    """Why a case fails; None when it passes."""
    for inputs, outputs in case.data_sets:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                got = run(case.model, [value(x) for x in inputs])
        except Exception as error:  # whatever a runtime raises is a failure of it
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:150]
        for i, expected in enumerate(outputs):
            if i >= len(got) or not same(got[i], value(expected), case.rtol, case.atol):
                return f"output {i} differs"
    return None


def same(got: Any, expected: Any, rtol: float, atol: float) -> bool:
    if isinstance(expected, list):
        return isinstance(got, (list, tuple)) and len(got) == len(expected) and all(
            same(g, e, rtol, atol) for g, e in zip(got, expected, strict=True)
        )  # fmt: skip
    if expected is None or got is None:
        return expected is None and got is None
    g, e = np.asarray(got), np.asarray(expected)
    if g.dtype != e.dtype and not (g.dtype.kind in "OUS" and e.dtype.kind in "OUS"):
        return False
    if g.shape != e.shape:
        return False
    if e.dtype.kind in "OUS":
        return bool(np.array_equal(g.astype(str), e.astype(str)))
    if e.dtype.kind in "iub":
        return bool(np.array_equal(g, e))
    if e.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)  # as in onnx's own runner: two units in the last place
    wide = np.float64 if e.dtype.kind != "c" else np.complex128
    return bool(np.allclose(g.astype(wide), e.astype(wide), rtol=rtol, atol=atol, equal_nan=True))


def operator_of(case: Any, names: dict[str, str]) -> str:
    """The operator that a case is about; an expanded case is about the one whose function body it holds."""
    plain = case.name.partition("_expanded")[0]
    if "_expanded" in case.name and plain in names:
        return names[plain]
    ops = [f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in case.model.graph.node]
    telling = [op for op in ops if op not in ("Constant", "Cast", "Identity")]
    return (telling or ops)[-1]


def scores(runtimes: dict[str, Run]) -> dict[str, dict[str, list[tuple[str, str | None]]]]:
    """By operator and runtime: each case with what is wrong, if anything."""
    cases = all_cases()
    names = {c.name: operator_of(c, {}) for c in cases if "_expanded" not in c.name}
    found: dict[str, dict[str, list[tuple[str, str | None]]]] = {}
    for case in cases:
        row = found.setdefault(operator_of(case, names), {name: [] for name in runtimes})
        for name, run in runtimes.items():
            row[name].append((case.name, problem(case, run)))
    return found


def differentiable() -> tuple[int, int]:
    """How many operators ox has with a gradient, of all whose newest schema declares a differentiable input."""
    declared = [
        s.name
        for s in defs.get_all_schemas()
        if s.domain == "" and not s.deprecated
        and any(p.differentiation_category.name == "Differentiable" for p in s.inputs)
    ]  # fmt: skip
    return sum(name in OPS and bool(OPS[name].rules) for name in declared), len(declared)


def totals(found: dict[str, dict[str, list[tuple[str, str | None]]]]) -> tuple[dict[str, int], int]:
    """How many cases each runtime passes, and how many there are."""
    passed: dict[str, int] = {}
    for row in found.values():
        for name, results in row.items():
            passed[name] = passed.get(name, 0) + sum(why is None for _, why in results)
    return passed, sum(len(next(iter(row.values()))) for row in found.values())


def main(arguments: list[str]) -> None:
    if "--failing" in arguments:
        for op, row in sorted(scores({"ox": on_ox}).items()):
            for name, why in row["ox"]:
                if why:
                    print(f"{op}\t{name}\t{why}")
        return
    found = scores(RUNTIMES)
    print(f"{'operator':34}{'cases':>6}" + "".join(f"{name:>16}" for name in RUNTIMES))
    passed, total = totals(found)
    for op, row in sorted(found.items()):
        good = {name: sum(why is None for _, why in results) for name, results in row.items()}
        print(f"{op:34}{len(row['ox']):>6}" + "".join(f"{good[name]:>16}" for name in RUNTIMES))
    print(f"{'all':34}{total:>6}" + "".join(f"{passed[name]:>16}" for name in RUNTIMES))
    print(f"{'':34}{'':>6}" + "".join(f"{100 * passed[name] / total:>14.1f} %" for name in RUNTIMES))
    with_gradient, declared = differentiable()
    print(f"operators with a gradient: {with_gradient} of the {declared} that declare a differentiable input")


if __name__ == "__main__":
    main(sys.argv[1:])
