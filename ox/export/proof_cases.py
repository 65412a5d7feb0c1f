"""The runs that a file is proven by: rows of the example through the eager model, and the golden samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ox.export import golden_samples as samples
from ox.export.example_inputs import Example, Sizes, recording_sizes
from ox.export.proof import Case
from ox.export.two_sizes import arrays_of
from ox.graph.ir import Array
from ox.graph.record.recording import named_outputs

PROOF_ROWS = (1, 2, 7)


def run_cases(model: Callable[..., Any], example: Example, names: Sequence[str], golden: Any) -> list[Case]:
    """What is run eagerly, to be compared. `golden` as in `ox.export.save`."""
    own, near, far = _variations(example)
    varied = [own, near, far] if near else [own]  # without a batch and open sizes one run is enough
    runs = zip(PROOF_ROWS, (own, near, far), strict=True) if example.batch else [(None, sizes) for sizes in varied]
    cases: list[Case] = []
    start = 0
    for rows, sizes in runs:
        count = {example.batch: rows} if example.batch and rows else {}
        inputs = example.cut(example.sizes | sizes | count, start)
        try:
            outputs = _eager(model, example, inputs, names)
        except Exception:  # of the model's own code, which may raise anything
            if sizes is not far or not far:
                raise
            # too small for the model, and not given by the user
            inputs = example.cut(example.sizes | near | count, start)
            outputs = _eager(model, example, inputs, names)
        cases.append(Case(rows, inputs, outputs))
        start += rows or 0
    for sample in samples.golden_inputs(example, golden):
        outputs = _eager(model, example, sample, names)
        if any(x.shape[:1] != (1,) for x in outputs.values()):
            break  # an output without one row per input row cannot be a golden output
        cases.append(Case(1, sample, outputs, in_report=False))
    return cases


def observed_sizes(example: Example, case: Case) -> tuple[Sizes, dict[str, tuple[int, ...]]]:
    """The named sizes of a run, and the shapes that came out."""
    sizes = {
        dim: size
        for name, dims in example.dims.items()
        for dim, size in zip(dims, case.inputs[name].shape, strict=True)
        if isinstance(dim, str)
    }
    return sizes, {name: array.shape for name, array in case.outputs.items()}


def _variations(example: Example) -> tuple[Sizes, Sizes, Sizes]:
    """The sizes besides the batch in the runs of the proof: the example's own, those of the second recording, and far
    from them, so that an output that varies with them is seen to vary, also behind a stride."""
    others = {dim: size for dim, size in example.sizes.items() if dim != example.batch}
    near = {dim: size for dim, size in recording_sizes(example)[1].items() if dim in others}
    far = {dim: size // 2 + 1 if size > 4 else 2 * size + 1 for dim, size in others.items()}
    return {}, near, far


def _eager(
    model: Callable[..., Any], example: Example, arrays: Mapping[str, Array], names: Sequence[str]
) -> dict[str, Array]:
    result = example.call(model, list(example.tensors(arrays).values()))
    outputs = arrays_of(named_outputs(result, None if isinstance(result, Mapping) else names))
    return {name: outputs[name] for name in names}
