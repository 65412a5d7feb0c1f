"""Golden samples of a file whose numbers changed: drawn again, with a tolerance of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ox.dtypes import is_floating
from ox.errors import ExportError
from ox.export.quantization.sessions import run
from ox.graph.contract import GOLDEN, PRECISION, TOLERANCE, Contract, Sample
from ox.graph.ir import Array

Outputs = Mapping[str, Array]


def renew(
    model: onnx.ModelProto,
    before: Mapping[str, str],
    session: Any,
    rows: Sequence[tuple[Mapping[str, Array], Outputs]] = (),
    precision: str | None = None,
    rounds: bool = True,
) -> Contract:
    """Writes the metadata of the float file into the quantized model, with the outputs that it gives now.

    The tolerance is the largest difference that the quantization itself made on `rows`, or without them on the golden
    samples, now or (as `before` says) earlier: another machine rounds another way, but not further away.

    Args:
        before: the metadata of the float file.
        rows: typical inputs, with the outputs of the float file.
        precision: the type that the model computes in, as in `Contract`.
        rounds: whether values are rounded to integers while it runs; other models need no tolerance but their type's.

    Raises:
        ExportError: an output is not finite.
    """
    contract = Contract.from_metadata(before)
    samples = [Sample(sample.inputs, run(session, sample.inputs)) for sample in contract.samples]
    # golden inputs may be beyond the calibrated range, and what is cut off there says nothing of rounding
    pairs = [(run(session, feed), outputs) for feed, outputs in rows]
    pairs = pairs or [(new.outputs, old.outputs) for new, old in zip(samples, contract.samples, strict=True)]
    differences = [d for d in (contract.tolerance, _distance(pairs)) if d is not None]
    tolerance = max(differences) if rounds and differences else None
    contract = replace(contract, samples=tuple(samples), tolerance=tolerance, precision=precision)
    kept = {key: text for key, text in before.items() if key not in (GOLDEN, PRECISION, TOLERANCE)}
    if contract.inputs:
        kept |= contract.to_metadata()
    del model.metadata_props[:]
    helper.set_model_props(model, kept | ({} if contract.inputs else _tolerance_alone(contract)))
    return contract


def relative_error(pairs: Iterable[tuple[Outputs, Outputs]]) -> float | None:
    """The largest difference of an output over all runs, as a share of its norm; None without floating outputs. What is
    not finite in the second of a pair is left out."""
    squares: dict[str, tuple[float, float]] = {}
    for now, then in pairs:
        for name, y in then.items():
            if not is_floating(y.dtype) or name not in now:
                continue
            wide = y.astype(np.float64)
            there = np.isfinite(wide)
            error = now[name].astype(np.float64)[there] - wide[there]
            before = squares.get(name, (0.0, 0.0))
            squares[name] = (before[0] + float(np.square(error).sum()), before[1] + float(np.square(wide[there]).sum()))
    shares = [(error / whole) ** 0.5 if whole else float(error > 0) for error, whole in squares.values()]
    return max(shares, default=None)


def _tolerance_alone(contract: Contract) -> dict[str, str]:
    return {key: text for key, text in contract.to_metadata().items() if key == TOLERANCE}


def _distance(pairs: Sequence[tuple[Outputs, Outputs]]) -> float | None:
    """The largest difference of floating outputs; None where there is nothing to compare."""
    largest = None
    for now, then in pairs:
        for name, y in now.items():
            if y.dtype.kind != "f" or name not in then:
                continue
            there = np.isfinite(then[name])
            if not np.isfinite(y[there]).all():
                raise ExportError(
                    f"output '{name}' of the quantized model is not finite",
                    got=f"{int((~np.isfinite(y[there])).sum())} of {y.size} values",
                    hint="values beyond the range of the type: bfloat16 or another scheme",
                )
            far = float(np.abs(y.astype(np.float64) - then[name])[there].max(initial=0.0))
            largest = far if largest is None else max(largest, far)
    return largest
