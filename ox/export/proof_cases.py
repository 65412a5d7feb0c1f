"""The runs that a file is proven by: rows of the example through the eager model, and the golden samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ox.errors import ArgumentError, ExportError
from ox.export import golden_samples as samples
from ox.export.declared_dims import Sizes
from ox.export.example_inputs import Example, recording_sizes, within
from ox.export.proof import Case
from ox.export.two_sizes import arrays_of, far_sizes
from ox.graph.ir import Array
from ox.graph.record.outputs import named_outputs
from ox.graph.size_rules import SizeRange, SizeRules

PROOF_ROWS = (1, 2, 7)
MOST_GROWTH = 4  # a border further above the example's size than this is not run


def run_cases(
    model: Callable[..., Any],
    example: Example,
    names: Sequence[str],
    golden: Any,
    rules: SizeRules,
    wanted: Sequence[Mapping[str, int]] = (),
) -> tuple[list[Case], SizeRules]:
    """What is run eagerly, to be compared, and the rules, of which a lower limit at which the model itself does not run
    is raised to where it does. `golden` as in `ox.export.save`, `wanted` are further sizes.

    Raises:
        ArgumentError: sizes that there are not, or that the file is not for.
    """

    def run(rows: int | None, sizes: Sizes, start: int = 0) -> Case:
        count = {example.batch: rows} if example.batch and rows is not None else {}
        inputs = example.cut(example.sizes | sizes | count, start)
        return Case(rows, inputs, _eager(model, example, inputs, names), sizes=sizes)

    cases, start = [], 0
    for rows, tried in _runs(example, rules):
        cases.append(_first_that_runs(run, rows, tried, start))
        start += rows or 0
    further, rules = _at_borders(run, example, rules)
    cases += further
    if 0 in rules.ranges.get(example.batch or "", SizeRange()):
        try:
            cases.append(run(0, {}))
        except Exception as error:  # of the model's own code
            raise _not_at_the_smallest(str(example.batch), rules.ranges[str(example.batch)], error) from error
    for asked in wanted:
        if (unknown := set(asked) - set(example.sizes)) or rules.broken(asked) is not None:
            raise ArgumentError(
                "the proof cannot be at these sizes",
                expected=rules.broken(asked) or ", ".join(example.sizes),
                got=str(dict(asked)),
                hint=f"no size is called '{min(unknown)}'" if unknown else None,
            )
        rows = asked.get(example.batch, 2) if example.batch else None
        others = {dim: size for dim, size in {**example.sizes, **asked}.items() if dim != example.batch}
        try:
            cases.append(run(rows, others))
        except (MemoryError, OverflowError) as error:
            raise ArgumentError(
                "the proof cannot be at these sizes: the memory is not enough",
                got=f"{dict(asked)}: {error}",
                hint="smaller sizes",
            ) from error
    batches = rules.ranges.get(example.batch or "", SizeRange())
    for sample in samples.golden_inputs(example, golden) if 1 in batches else []:
        outputs = _eager(model, example, sample, names)
        if any(x.shape[:1] != (1,) for x in outputs.values()):
            break  # an output without one row per input row cannot be a golden output
        cases.append(Case(1, sample, outputs, in_report=False))
    return cases, rules


def _runs(example: Example, rules: SizeRules) -> Iterator[tuple[int | None, list[Sizes]]]:
    """The batch of each run, and its other sizes: the example's own, those of the second recording, and far from them
    on both sides, so that an output that varies with them is seen to vary, also behind a stride. Of several, the first
    that the model takes."""
    others = {dim: size for dim, size in example.sizes.items() if dim != example.batch}
    rows = rules.ranges.get(example.batch or "")
    counts = [n for n in PROOF_ROWS if rows is None or n in rows]
    if rows is not None and not counts:
        counts = [rows.min]
    if not others:  # without a batch and open sizes one run is enough
        for count in counts if example.batch else [None]:
            yield count, [{}]
        return
    near = {dim: size for dim, size in recording_sizes(example)[1].items() if dim in others}
    near = within(near, rules.ranges, [others])
    far = far_sizes(example, rules)
    sizes: list[list[Sizes]] = [[others], [near, others], *([each, near, others] for each in far)]
    if not example.batch:
        yield from ((None, each) for each in sizes)
        return
    for i, each in enumerate(sizes):
        yield counts[min(i, len(counts) - 1)] if i < 3 else counts[0], each


def _first_that_runs(run: Callable[..., Case], rows: int | None, tried: Sequence[Sizes], start: int) -> Case:
    for sizes in tried[:-1]:
        try:
            return run(rows, sizes, start)
        except Exception:  # of the model's own code: too small or too large for it, and not given by the user
            continue
    return run(rows, tried[-1], start)


def _at_borders(run: Callable[..., Case], example: Example, rules: SizeRules) -> tuple[list[Case], SizeRules]:
    """Runs at the smallest and the largest size of each range, where that is not far above the example's."""
    cases, ranges = [], dict(rules.ranges)
    others = {dim: size for dim, size in example.sizes.items() if dim != example.batch}
    rows = ranges.get(example.batch or "")
    count = None if example.batch is None else 2 if rows is None or 2 in rows else rows.min
    for dim, own in others.items():
        found = ranges.get(dim)
        if found is None:
            continue
        if found.min != 1:
            lowest = _lowest_that_runs(partial(run, count), example, dim, found)
            cases.append(run(count, others | {dim: lowest}))
            ranges[dim] = replace(found, min=lowest)
        highest = None if found.max is None else found.nearest(found.max)
        if highest is not None and highest != own and highest <= MOST_GROWTH * own:
            cases.append(run(count, others | {dim: highest}))
    # a condition with another size may exclude a border
    return [case for case in cases if rules.broken(case.sizes) is None], replace(rules, ranges=ranges)


def _lowest_that_runs(run: Callable[[Sizes], Case], example: Example, dim: str, found: SizeRange) -> int:
    """The smallest size of a range that the model takes: the limit itself, else found by halves up to the example's.

    Raises:
        ExportError: the limit was declared, and the model does not take it.
    """
    sizes = {each: size for each, size in example.sizes.items() if each != example.batch}
    tried = [n for n in range(found.min, sizes[dim] + 1) if n in found]
    low, high, at = 0, len(tried) - 1, 0
    while low < high:
        try:
            run(sizes | {dim: tried[at]})
            high = at
        except Exception as error:  # of the model's own code
            if dim in example.declared and example.declared[dim].min == found.min:
                raise _not_at_the_smallest(dim, found, error) from error
            low = at + 1
        at = (low + high) // 2
    return tried[high]


def _not_at_the_smallest(dim: str, declared: SizeRange, error: Exception) -> ExportError:
    return ExportError(
        f"the model does not run at the smallest {dim} that was declared",
        expected=f"{dim} in {declared}",
        got=f"{type(error).__name__}: {error}",
    )


def observed_sizes(example: Example, case: Case) -> tuple[Sizes, dict[str, tuple[int, ...]]]:
    """The named sizes of a run, and the shapes that came out."""
    sizes = {
        dim: size
        for name, dims in example.dims.items()
        for dim, size in zip(dims, case.inputs[name].shape, strict=True)
        if isinstance(dim, str)
    }
    return sizes, {name: array.shape for name, array in case.outputs.items()}


def _eager(
    model: Callable[..., Any], example: Example, arrays: Mapping[str, Array], names: Sequence[str]
) -> dict[str, Array]:
    result = example.call(model, list(example.tensors(arrays).values()))
    outputs = arrays_of(named_outputs(result, names))
    return {name: outputs[name] for name in names}
