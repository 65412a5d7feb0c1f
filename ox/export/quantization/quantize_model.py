"""`ox.export.quantize`: a file in lower precision, measured beside the original before it appears."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx.numpy_helper import to_array

from ox.devices.runtime import onnxruntime
from ox.errors import ArgumentError, ExportError
from ox.export.files import check_writable
from ox.export.quantization.golden import renew
from ox.export.quantization.report import QuantizeReport
from ox.export.quantization.schemes import Scheme, scheme_of
from ox.export.quantization.sessions import open_session, run, seconds
from ox.export.quantization.source_model import QUANTIZED, prepare, quietly, read_source, weights_of
from ox.export.save_model import note_failure
from ox.graph.reader.model_file import metadata_of
from ox.serialization.files import write_whole

COMPARED = 8  # calibration runs that the tolerance and the sensitivity are measured on
Evaluate = Callable[[Any], float]  # of a session


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

    Built on `onnxruntime.quantization` and `onnxruntime.transformers.float16`.

    Args:
        model: the float32 file.
        path: the file to write.
        scheme: ``float16``; ``bfloat16``: weights alone; ``int8-dynamic``: activations by the range of each batch;
            ``int8``: QDQ, weights by channel, activations by calibration; ``int4``: weights of MatMul and Gemm, by
            block.
        calibration: typical inputs: an array, a tuple or dict of arrays with rows along the first dimension, or a list
            of dicts, each of them one run. ``int8`` needs them; the others use them for measuring.
        method: how calibration finds ranges: ``minmax``, ``percentile`` (99.999) or ``entropy``.
        block_size: how many weights of int4 share a scale; a power of two from 16 on.
        evaluate: takes a session of ONNX Runtime, returns the accuracy.
        min_accuracy: what `evaluate` must return for the result.
        mixed: leave layers in float, the most sensitive first, until `min_accuracy` holds.

    Raises:
        ArgumentError: options or calibration data that do not fit the file; a file that is quantized already, or too
            old for the scheme, or without layers that the scheme quantizes.
        ExportError: the accuracy is too low, the runtime lacks the scheme, or the file cannot be written.
        LoadError: the file is missing or damaged.
    """
    source, path, chosen = Path(model), Path(path), scheme_of(scheme)
    _check_options(chosen, calibration, evaluate, min_accuracy, mixed)
    onnxruntime()  # with an error that says how to install it
    from ox.export.quantization.calibration import METHODS, find_ranges, read_calibration

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
        reasons: list[str] = []
        with TemporaryDirectory(prefix="ox-quantize-") as folder:
            ranges = Path(folder) / "ranges.json"
            if chosen.calibrated:
                with quietly():
                    find_ranges(prepared, feeds, METHODS[method], ranges)

            def apply(in_float: Collection[str]) -> onnx.ModelProto:
                reasons.clear()
                made = _apply(chosen, prepared, in_float, METHODS[method], block_size, ranges, reasons)
                _drop_unused_domains(made)
                return made

            made = apply(())
            _check_result(made, chosen, layers, reasons, source)
            session = open_session(made, f"the {scheme} model")
            accuracy = None if evaluate is None else (score(evaluate, float_session), score(evaluate, session))
            in_float: list[str] = []
            if mixed and accuracy is not None and min_accuracy is not None and accuracy[1] < min_accuracy:
                from ox.export.quantization.sensitivity import by_sensitivity

                assert evaluate is not None
                ranked = by_sensitivity(layers, names, apply, float_session, feeds[:COMPARED])
                while accuracy[1] < min_accuracy and len(in_float) < len(layers) - 1:
                    in_float.append(ranked[len(in_float)])
                    made = apply(in_float)
                    session = open_session(made, f"the {scheme} model")
                    accuracy = (accuracy[0], score(evaluate, session))
        if accuracy is not None and min_accuracy is not None and not accuracy[1] >= min_accuracy:
            raise _too_inaccurate(scheme, accuracy, min_accuracy, mixed)
        rows = [(feed, run(float_session, feed)) for feed in feeds[:COMPARED]]
        contract = renew(made, metadata, session, rows, chosen.precision, chosen.rounds)
        example = next(iter([s.inputs for s in contract.samples] + [_one(f, float_session) for f in feeds]), None)
        taken = None if example is None else seconds([float_session, session], example)
        before = _size(source)  # which `path` may replace
        write(made, path)
        return QuantizeReport(
            source,
            path,
            scheme,
            tuple(layer for layer in layers if layer not in in_float),
            tuple(in_float),
            tuple(reasons),
            len(feeds),
            (before, path.stat().st_size),
            None if taken is None else (taken[0], taken[1]),
            1 if example is None else next((len(x) for x in example.values() if x.ndim), 1),
            accuracy,
            contract,
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

    def save(temporary: Path) -> None:
        onnx.save(model, temporary)
        try:
            onnx.checker.check_model(temporary)
        except onnx.checker.ValidationError as error:
            raise ExportError("onnx.checker refuses the file", got=str(error).strip()) from error

    write_whole(path, save)


def _apply(
    scheme: Scheme,
    model: onnx.ModelProto,
    in_float: Collection[str],
    method: Any,
    block_size: int,
    ranges: Path,
    reasons: list[str],
) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if scheme.name == "int4":
        from ox.export.quantization.blockwise import to_int4

        made, left = to_int4(copy, in_float, block_size)
        reasons += left
        return made
    if scheme.rounds:
        from ox.export.quantization.integers import to_dynamic_int8, to_static_int8

        if scheme.calibrated:
            return to_static_int8(copy, in_float, method, ranges)
        return to_dynamic_int8(copy, in_float)
    from ox.export.quantization.half_precision import to_bfloat16, to_float16

    return (to_float16 if scheme.name == "float16" else to_bfloat16)(copy, in_float)


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
    weights = weights_of(model)
    found = [
        node.name
        for node in model.graph.node
        if node.op_type in scheme.layers and any(name in weights for name in node.input[:2])  # the third is a bias
    ]
    if not found:
        counts = Counter(node.op_type for node in model.graph.node)
        raise ArgumentError(
            f"{source} has no layer that {scheme.name} quantizes",
            expected=f"{', '.join(scheme.layers)} with weights of their own",
            got=", ".join(f"{n} {name}" for name, n in counts.most_common(6)) or "no node",
        )
    return found


def _check_result(
    made: onnx.ModelProto, scheme: Scheme, layers: Sequence[str], reasons: Sequence[str], source: Path
) -> None:
    """Raises ArgumentError where nothing was quantized, or with a step that is no number."""
    weights = weights_of(made)
    steps = {node.input[1] for node in made.graph.node if node.op_type == "QuantizeLinear" and scheme.calibrated}
    if bad := [name for name in sorted(steps & weights.keys()) if not np.isfinite(to_array(weights[name])).all()]:
        from ox.export.quantization.integers import not_finite

        raise not_finite(f"{bad[0]} {to_array(weights[bad[0]])}")
    if not scheme.rounds or any(node.op_type in QUANTIZED for node in made.graph.node):
        return
    raise ArgumentError(
        f"no weight of {source} can be quantized as {scheme.name}",
        where=f"{len(layers)} layers",
        expected="matrices of two dimensions that only products read, with as many rows as a block",
        got="; ".join(reasons[:4]) or "weights of other ranks",
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


def _size(path: Path) -> int:
    beside = path.with_name(path.name + ".data")
    return path.stat().st_size + (beside.stat().st_size if beside.is_file() else 0)
