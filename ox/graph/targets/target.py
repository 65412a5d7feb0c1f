"""Which runtime needs what of a file. Everything here was found by `make embed` (tests/embed), which runs the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ox.core.operator import OPS
from ox.errors import ArgumentError
from ox.graph.ir import Graph
from ox.graph.passes.batched_products import write_batched_products
from ox.graph.passes.inference import for_inference
from ox.graph.passes.reshape_targets import simplify_reshape_targets
from ox.graph.passes.shape_inference import Dims, inferred_sizes, simplify, without_wrong_sizes
from ox.graph.targets.bodies import (
    range_as_running_sum,
    recurrent_in_steps,
    scatter_add_as_product,
    split_with_sizes,
    stft_as_convolution,
    wrap_as_slices,
)
from ox.graph.targets.expand import Rule, expand
from ox.graph.targets.opencv import subtract_broadcast
from ox.graph.targets.unroll import unroll_scans
from ox.graph.writer.names import rename

Rewrite = Callable[[Graph, Dims], bool]
_SIZES: tuple[Rewrite, ...] = (write_batched_products, simplify_reshape_targets)


@dataclass(frozen=True)
class Target:
    """What is written otherwise for a runtime.

    Attributes:
        opset: the newest whose operators it has. Newer ones (RMSNormalization, GroupNormalization, Gelu, Mish) are
            expanded, and nothing is a model-local function.
        rules: operators that it lacks at that opset too, and in what they are written.
        rewrites: passes over the graph, in place, that say whether they changed anything.
        last: such passes, of which the simplification of arithmetic would undo what they do.
    """

    opset: int
    rules: Mapping[str, Rule] = field(default_factory=dict)
    rewrites: tuple[Rewrite, ...] = _SIZES
    last: tuple[Rewrite, ...] = ()


_EVERY: dict[str, Rule] = {"STFT": stft_as_convolution, "Pad": wrap_as_slices}
_OLD: dict[str, Rule] = {**_EVERY, "Split": split_with_sizes}  # opset 17 has no number of parts, 18 has
_RECURRENT: dict[str, Rule] = {
    name: recurrent_in_steps for name, op in OPS.items() if op.kind == "recurrent" and not op.domain
}

TARGETS: dict[str, Target] = {
    "iree": Target(17, {**_OLD, "GRU": recurrent_in_steps}, (*_SIZES, unroll_scans)),
    "mnn": Target(17, _OLD),
    "ncnn": Target(17, _OLD),
    "opencv": Target(17, {**_OLD, "ScatterElements": scatter_add_as_product}, last=(subtract_broadcast,)),
    "openvino": Target(21, _EVERY),
    "tvm": Target(17, {**_OLD, **_RECURRENT, "Range": range_as_running_sum}, (*_SIZES, unroll_scans)),
}


def find_target(name: str) -> Target:
    """The target of this name.

    Raises:
        ArgumentError: there is none.
    """
    if name not in TARGETS:
        raise ArgumentError(
            f"there is no target '{name}'",
            expected=", ".join(TARGETS),
            got=repr(name),
            hint="ONNX Runtime takes every file as it is; docs/runtimes.md says what others take",
        )
    return TARGETS[name]


def for_target(graph: Graph, target: Target, opset: int) -> Dims:
    """Write a graph for inference in a runtime, in place; returns the inferred sizes of what is left.

    The graph computes the same within `ox.tolerance`, with the same inputs and outputs; parameters may be others, as by
    `ox.graph.passes.inference.for_inference`.
    """
    # before the Reshapes between linear layers are left out, for only those of one layer are recognized
    write_batched_products(graph, inferred_sizes(graph, opset))
    for_inference(graph, opset)
    while True:
        rename(graph)
        dims = simplify(graph, opset)
        right = without_wrong_sizes(graph, dims)
        # inference of sizes knows values by their names, and a body may give one name twice: no rewrite sees it so
        changed = expand(graph, opset, target.rules, right)
        for rewrite in () if changed else target.rewrites:
            changed |= rewrite(graph, right)
        if not changed:
            break
        rename(graph)
        for_inference(graph, opset)
    for rewrite in target.last:
        rewrite(graph, right)
    return dims
