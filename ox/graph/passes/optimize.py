"""All passes over a graph that need no sizes by inference, until nothing changes."""

from __future__ import annotations

from ox.graph.ir import Graph
from ox.graph.passes.algebra import simplify_arithmetic
from ox.graph.passes.cleanup import merge_constants, remove_dead, remove_identities
from ox.graph.passes.common_subexpressions import merge_common_subexpressions
from ox.graph.passes.fold_if import fold_constant_ifs
from ox.graph.passes.layout import move_transposes
from ox.graph.passes.movement import merge_movement
from ox.graph.passes.sizes import fold_fixed_sizes

ROUNDS = 16  # a bound; two or three do


def optimize(graph: Graph) -> None:
    """Make a graph shorter, in place.

    It keeps what the graph computes (within `ox.tolerance`; each pass says what of it is exact), its inputs and outputs
    (the same values, in order), what it owns, and the user's lines of nodes. It has no effect on subgraphs but the
    removal of what is dead in them. The result depends on the graph alone.
    """
    for _ in range(ROUNDS):
        remove_dead(graph)
        changed = remove_identities(graph)
        changed |= fold_fixed_sizes(graph)
        changed |= fold_constant_ifs(graph)
        merge_constants(graph)
        changed |= merge_common_subexpressions(graph)
        changed |= simplify_arithmetic(graph)
        changed |= merge_movement(graph)
        changed |= move_transposes(graph)
        if not changed:
            break
    remove_dead(graph)
