"""`ox.export.quantize`: a file in lower precision, measured beside the original before it appears."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx.numpy_helper import to_array

from ox.devices.onnxruntime.runtime import onnxruntime
from ox.errors import ArgumentError, ExportError
from ox.export.files import check_writable
from ox.export.quantization.golden import relative_error, renew
from ox.export.quantization.report import QuantizeReport
from ox.export.quantization.schemes import Scheme, scheme_of
from ox.export.quantization.sessions import open_session, run, runs, seconds
from ox.export.quantization.source_model import is_quantized, prepare, quietly, read_source, weights_of
from ox.export.save_model import note_failure
from ox.export.summary import inspect
from ox.graph.contract import Contract
from ox.graph.reader.model_file import graphs_of, metadata_of, nodes_of, opset_of
from ox.graph.reader.order import in_order
from ox.serialization.files import write_whole

COMPARED = 8  # calibration runs that the tolerance and the sensitivity are measured on
FINITE_OPSET = 10  # which has IsInf
MAX_ERROR = 0.1  # of the outputs of a 16-bit model, as a share of their norm
Evaluate = Callable[[Any], float]  # of a session


@dataclass
class Left:
    """What a scheme left in float32: names of nodes, and why, one line for each weight or constant."""

    in_float: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()
    peaks: dict[str, float] = field(default_factory=dict)  # the largest values that were seen, by name


def quantize(
    model: str | os.PathLike[str],
    path: str | os.PathLike[str],
    scheme: str = "int8",
    *,
    calibration: Any = None,
    method: str = "minmax",
    block_size: int = 32,
    evaluate: Evaluate | None = None,
    min_accuracy: float | None = None,
    mixed: bool = False,
) -> QuantizeReport:
    """Write a float32 file in lower precision, and measure it beside the original. It appears only if it is accurate
    enough. Golden samples in the file are drawn again, with a tolerance of their own.

    The integer schemes are built on `onnxruntime.quantization`.

    Args:
        model: the float32 file.
        path: the file to write.
        scheme: ``float16``; ``bfloat16``: weights alone; ``int8-dynamic``: activations by the range of each batch;
            ``int8``: QDQ, weights by channel, activations by calibration; ``int4``: weights of MatMul and Gemm, by
            block. A constant that float16 cannot hold is named, and what reads it stays in float32.
        calibration: typical inputs: the path of an .npz or .npy file, an array, a tuple or dict of arrays with rows
            along the first dimension, or a list of dicts, each of them one run. ``int8`` needs them; the others use
            them for measuring.
        method: how calibration finds ranges: ``minmax``, ``percentile`` (99.999) or ``entropy``.
        block_size: how many weights of int4 share a scale; a power of two from 16 on.
        evaluate: takes a session of ONNX Runtime, returns the accuracy.
        min_accuracy: what `evaluate` must return for the result.
        mixed: leave layers in float, the most sensitive first, until `min_accuracy` holds.

    Raises:
        ArgumentError: options or calibration data that do not fit the file; a file that is quantized already, or too
            old for the scheme, or without layers that the scheme quantizes.
        ExportError: the accuracy is too low, the outputs of a 16-bit model are far from those of the file, the runtime
            lacks the scheme, or the file cannot be written.
        LoadError: the file is missing or damaged.
    """
    source, path, chosen = Path(model), Path(path), scheme_of(scheme)
    _check_options(chosen, calibration, evaluate, min_accuracy, mixed)
    onnxruntime()  # with an error that says how to install it
    from ox.export.quantization.calibration import METHODS, find_ranges, read_calibration
    from ox.export.quantization.float16 import peaks_of

    if method not in METHODS:
        raise ArgumentError(f"there is no calibration '{method}'", expected=", ".join(METHODS))
    with note_failure(path):
        check_writable(path)
        original = read_source(source, chosen.opset, scheme)
        metadata = metadata_of(original)
        float_session = open_session(original, str(source))
        feeds = (
            [] if calibration is None else read_calibration(calibration, float_session, infinite=not chosen.calibrated)
        )
        prepared = prepare(original) if chosen.prepared else original
        layers = _layers(prepared, chosen, source)
        names = [node.name for node in prepared.graph.node]
        left = Left()
        with TemporaryDirectory(prefix="ox-quantize-") as folder:
            ranges = Path(folder) / "ranges.json"
            if chosen.calibrated:
                with quietly():
                    find_ranges(prepared, feeds, METHODS[method], ranges)

            golden = [(dict(s.inputs), s.outputs) for s in Contract.from_metadata(metadata).samples]
            if chosen.name == "float16" and opset_of(prepared) >= FINITE_OPSET:
                left.peaks = peaks_of(prepared, feeds[:COMPARED] or [inputs for inputs, _ in golden])

            def apply(in_float: Collection[str]) -> onnx.ModelProto:
                made = _apply(chosen, prepared, in_float, METHODS[method], block_size, ranges, left)
                _drop_unused_domains(made)
                _sort(made)
                return made

            made = apply(())
            _check_result(made, chosen, layers, left, source)
            session = open_session(made, f"the {scheme} model")
            accuracy = None if evaluate is None else (score(evaluate, float_session), score(evaluate, session))
            in_float = [name for name in layers if name in left.in_float]
            if mixed and accuracy is not None and min_accuracy is not None and accuracy[1] < min_accuracy:
                from ox.export.quantization.sensitivity import by_sensitivity

                assert evaluate is not None
                others = [name for name in layers if name not in in_float]
                ranked = by_sensitivity(others, names, apply, float_session, feeds[:COMPARED])
                while accuracy[1] < min_accuracy and len(in_float) < len(layers) - 1:
                    in_float.append(ranked.pop(0))
                    made = apply(in_float)
                    session = open_session(made, f"the {scheme} model")
                    accuracy = (accuracy[0], score(evaluate, session))
        if accuracy is not None and min_accuracy is not None and not accuracy[1] >= min_accuracy:
            raise _too_inaccurate(scheme, accuracy, min_accuracy, mixed)
        rows = [(feed, run(float_session, feed)) for feed in feeds[:COMPARED]]
        contract = renew(made, metadata, session, rows, chosen.precision, chosen.rounds)
        compared = rows or golden
        error = relative_error((run(session, inputs), outputs) for inputs, outputs in compared)
        if error is not None and error > MAX_ERROR and not chosen.rounds and min_accuracy is None:
            raise _too_far(scheme, error, left)
        examples = [s.inputs for s in contract.samples] + [_one(feed, float_session) for feed in feeds[:1]] + feeds[:1]
        example = next((x for x in examples if runs(float_session, x)), None)
        taken = None if example is None else seconds([float_session, session], example)
        before = inspect(source).size  # which `path` may replace
        write(made, path)
        return QuantizeReport(
            source,
            path,
            scheme,
            tuple(layer for layer in layers if layer not in in_float),
            tuple(in_float),
            left.reasons,
            len(feeds),
            (before, path.stat().st_size),
            None if taken is None else (taken[0], taken[1]),
            1 if example is None else next((len(x) for x in example.values() if x.ndim), 1),
            accuracy,
            contract,
            error,
        )


def score(evaluate: Evaluate, session: Any) -> float:
    """What `evaluate` says of a session.

    Raises:
        ArgumentError: it is no number.
    """
    value = evaluate(session)
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "`evaluate` returned no number",
            expected="an accuracy, such as 0.97",
            got=f"{type(value).__name__} {value!r}",
        ) from error


def write(model: onnx.ModelProto, path: Path) -> None:
    """Checked, and whole or not at all."""

    ends = [info.type.tensor_type for info in (*model.graph.input, *model.graph.output)]
    open_ends = [kind for kind in ends if not kind.HasField("shape")]  # which runtimes take, and the checker does not

    def save(temporary: Path) -> None:
        for kind in open_ends:
            kind.shape.SetInParent()
        onnx.save(model, temporary)
        try:
            onnx.checker.check_model(temporary)
        except onnx.checker.ValidationError as error:
            raise ExportError("onnx.checker refuses the file", got=str(error).strip()) from error
        for kind in open_ends:
            kind.ClearField("shape")
        if open_ends:
            onnx.save(model, temporary)

    write_whole(path, save)


def _apply(
    scheme: Scheme,
    model: onnx.ModelProto,
    in_float: Collection[str],
    method: Any,
    block_size: int,
    ranges: Path,
    left: Left,
) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    left.in_float, left.reasons = frozenset(), ()
    if scheme.name == "int4":
        from ox.export.quantization.blockwise import to_int4

        made, reasons = to_int4(copy, in_float, block_size)
        left.reasons = tuple(reasons)
        return made
    if scheme.rounds:
        from ox.export.quantization.integers import to_dynamic_int8, to_static_int8

        if scheme.calibrated:
            return to_static_int8(copy, in_float, method, ranges)
        return to_dynamic_int8(copy, in_float)
    if scheme.name == "bfloat16":
        from ox.export.quantization.half_precision import to_bfloat16

        made, reasons = to_bfloat16(copy, in_float)
        left.reasons = tuple(reasons)
        return made
    from ox.export.quantization.float16 import to_float16

    result = to_float16(copy, in_float, left.peaks)
    left.in_float, left.reasons = result.in_float32, result.reasons
    return result.model


def _check_options(scheme: Scheme, calibration: Any, evaluate: Any, min_accuracy: float | None, mixed: bool) -> None:
    if scheme.calibrated and calibration is None:
        raise ArgumentError(
            f"{scheme.name} needs calibration data",
            expected="some hundred typical inputs of the model",
            got="none",
            hint="int8-dynamic, which needs none",
        )
    if min_accuracy is not None and evaluate is None:
        raise ArgumentError("a smallest accuracy needs `evaluate`", expected="a function of a session", got="None")
    if mixed and (min_accuracy is None or calibration is None):
        raise ArgumentError(
            "mixed precision needs calibration data and a smallest accuracy",
            expected="calibration=..., evaluate=..., min_accuracy=...",
            got=f"min_accuracy={min_accuracy}, calibration {'given' if calibration is not None else 'missing'}",
        )


def _layers(model: onnx.ModelProto, scheme: Scheme, source: Path) -> list[str]:
    """The nodes with weights that the scheme quantizes.

    Raises:
        ArgumentError: there are none.
    """
    weights = set(weights_of(model))
    if not scheme.rounds:  # those that ONNX Runtime's tools move about first count, too
        _add_computed(weights, model)
    found = [
        node.name
        for graph in (graphs_of(model.graph) if not scheme.rounds else [model.graph])
        for node in graph.node
        if node.op_type in scheme.layers and any(name in weights for name in node.input[:2])  # the third is a bias
    ]
    if not found:
        counts = Counter(node.op_type for node in model.graph.node)
        raise ArgumentError(
            f"{source} has no layer that {scheme.name} quantizes",
            expected=f"{', '.join(scheme.layers)} with weights of their own",
            got=", ".join(f"{n} {name}" for name, n in counts.most_common(6)) or "no node",
            hint="float16 or bfloat16, which take the layers in branches and loops too"
            if scheme.rounds and any(node.op_type in scheme.layers for node in nodes_of(model))
            else None,
        )
    return found


def _check_result(made: onnx.ModelProto, scheme: Scheme, layers: Sequence[str], left: Left, source: Path) -> None:
    """Raises ArgumentError where nothing was quantized, or with a step that is no number."""
    weights = weights_of(made)
    steps = {node.input[1] for node in made.graph.node if node.op_type == "QuantizeLinear" and scheme.calibrated}
    if bad := [name for name in sorted(steps & weights.keys()) if not np.isfinite(to_array(weights[name])).all()]:
        from ox.export.quantization.integers import not_finite

        raise not_finite(f"{bad[0]} {to_array(weights[bad[0]])}")
    if left.in_float.issuperset(layers):
        raise ArgumentError(
            f"no layer of {source} can be written in {scheme.name}",
            where=f"{len(layers)} layers",
            expected="weights that float16 can hold",
            got="; ".join(left.reasons[:4]),
            hint="bfloat16, which has the range of float32",
        )
    if not scheme.rounds or any(is_quantized(node.op_type) for node in made.graph.node):
        return
    raise ArgumentError(
        f"no weight of {source} can be quantized as {scheme.name}",
        where=f"{len(layers)} layers",
        expected="matrices of two dimensions that only products read, with as many rows as a block",
        got="; ".join(left.reasons[:4]) or "weights of other ranks",
        hint="a smaller --block-size (16 or more), or int8",
    )


def _too_inaccurate(scheme: str, accuracy: tuple[float, float], least: float, mixed: bool) -> ExportError:
    hint = "more calibration data" if mixed else "mixed precision (--mixed), another calibration (--method) or scheme"
    return ExportError(
        f"the {scheme} model is less accurate than it must be",
        expected=f"{least} or more (float32: {accuracy[0]:.6g})",
        got=f"{accuracy[1]:.6g}",
        hint=hint,
    )


def _too_far(scheme: str, error: float, left: Left) -> ExportError:
    return ExportError(
        f"the {scheme} model gives other outputs than the float32 one",
        expected=f"a difference of at most {MAX_ERROR:.0%} of the outputs",
        got=f"{error:.3g} of them" + "".join(f"; {reason}" for reason in left.reasons[:4]),
        hint="bfloat16, which has the range of float32; or a smallest accuracy (--min-accuracy), which then decides",
    )


def _add_computed(names: set[str], model: onnx.ModelProto) -> None:
    """Adds what nodes compute from these initializers, and from other constants, alone."""
    inputs = {info.name for info in model.graph.input}
    constant = {t.name for t in model.graph.initializer} - inputs
    for node in model.graph.node:
        if node.op_type == "Constant" or (node.input and all(not n or n in constant for n in node.input)):
            constant.update(node.output)
            if any(name in names for name in node.input):
                names.update(node.output)


def _sort(model: onnx.ModelProto) -> None:
    """Each node behind those that make what it reads, in its branches too: the tools look at its inputs alone."""
    nodes = list(in_order(model.graph.node))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _one(feed: Any, session: Any) -> dict[str, Any]:
    """The first row of a run, where the batch size varies."""
    free = all(info.shape and not isinstance(info.shape[0], int) for info in session.get_inputs())
    return {name: x[:1] for name, x in feed.items()} if free else feed


def _drop_unused_domains(model: onnx.ModelProto) -> None:
    """The tools import every domain of ONNX Runtime."""
    used = {node.domain for node in model.graph.node} | {""}
    kept = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)
