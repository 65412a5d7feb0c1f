"""A graph for inference alone: what only training needs of it goes."""

from __future__ import annotations

from ox.graph.ir import Graph
from ox.graph.passes.fold_batch_norm import fold_batch_norms
from ox.graph.passes.fold_parameters import fold_parameters
from ox.graph.passes.optimize import optimize


def for_inference(graph: Graph) -> None:
    """`optimize`, with batch norms folded into the products before them and parameters into what is made of them.

    The graph computes the same within `ox.tolerance`. Its inputs and outputs stay; parameters may be others.
    """
    optimize(graph)
    fold_parameters(graph)
    if fold_batch_norms(graph):
        optimize(graph)
