"""A graph for inference alone: what only training needs of it goes."""

from __future__ import annotations

from ox.graph.ir import Graph
from ox.graph.passes.depth_to_space import find_depth_to_space
from ox.graph.passes.fold_batch_norm import fold_batch_norms
from ox.graph.passes.fold_pads import fold_pads
from ox.graph.passes.fold_parameters import fold_parameters
from ox.graph.passes.fold_scales import fold_scales
from ox.graph.passes.group_norm import expand_group_norms
from ox.graph.passes.move_reshapes import move_reshapes
from ox.graph.passes.optimize import optimize
from ox.graph.passes.reshape_targets import simplify_reshape_targets
from ox.graph.passes.select_index import gather_selected
from ox.graph.passes.shape_arithmetic import shorten_shape_arithmetic
from ox.graph.passes.shape_inference import inferred_sizes

ROUNDS = 8  # a bound; two or three do


def for_inference(graph: Graph, opset: int | None = None) -> None:
    """`optimize`, with batch norms and scales folded into the products before them, parameters into what is made of
    them, and sizes and Reshapes said in fewer operators.

    The graph computes the same within `ox.tolerance`. Its inputs and outputs stay; parameters may be others.
    """
    optimize(graph)
    fold_parameters(graph)
    fold_batch_norms(graph)
    fold_pads(graph)
    gather_selected(graph)
    expand_group_norms(graph)
    for _ in range(ROUNDS):
        optimize(graph)
        known = inferred_sizes(graph, opset)
        changed = find_depth_to_space(graph, known)
        changed |= simplify_reshape_targets(graph, known)
        changed |= shorten_shape_arithmetic(graph, known)
        changed |= move_reshapes(graph, known)
        changed |= fold_scales(graph, known)
        if not changed:
            break
