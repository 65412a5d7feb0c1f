"""Bodies of decision trees: TreeEnsembleRegressor and TreeEnsembleClassifier of `ai.onnx.ml`.

All trees are followed at once, from level to level: each step looks up, for each sample and tree, the feature, the
threshold and the children of the node where it is. A leaf is its own child.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.graph.reader.body_writer import BodyWriter

COMPARISONS = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}
DEEPEST = 64


def leaves(w: BodyWriter, kind: str, count: int, *, only: bool = False) -> str:
    """What the leaves of all trees say about each sample: [samples, trees, count].

    Args:
        kind: ``target`` or ``class``, the prefix of the attributes of leaves.
        count: how many targets or classes there are.
        only: one of them has weights, and stands for all.
    """
    keys = list(zip(w.attribute("nodes_treeids"), w.attribute("nodes_nodeids"), strict=True))
    place = {key: i for i, key in enumerate(keys)}
    modes, trees = w.attribute("nodes_modes"), w.attribute("nodes_treeids")
    leaf = np.array([mode == "LEAF" for mode in modes])
    own = np.arange(len(keys))
    children = [
        np.array([i if end else place[tree, n] for i, (tree, n, end) in enumerate(zip(trees, ids, leaf, strict=True))])
        for ids in (w.attribute("nodes_truenodeids"), w.attribute("nodes_falsenodeids"))
    ]
    used = {mode for mode in modes if mode != "LEAF"}
    if len(used) > 1 or not used <= set(COMPARISONS):
        raise w.refuse("with nodes that compare in several ways", got=", ".join(sorted(used)))
    roots = sorted(set(own) - {int(c) for each in children for c in each[~leaf]})
    thresholds = np.asarray(w.attribute("nodes_values"))
    kept = np.zeros((len(keys), count), thresholds.dtype if thresholds.dtype == np.float64 else np.float32)
    named = (w.attribute(f"{kind}_{part}") for part in ("treeids", "nodeids", "ids", "weights"))
    for tree, node, target, weight in zip(*named, strict=True):
        kept[place[tree, node], 0 if only else target] += weight

    x = w.input(0)
    missing = np.asarray(w.attribute("nodes_missing_value_tracks_true", [0] * len(keys)), bool)
    tables = [w.constant(np.where(leaf, 0, w.attribute("nodes_featureids")), np.int64)]
    tables += [w.constant(thresholds, thresholds.dtype if thresholds.dtype == np.float64 else np.float32)]
    tables += [w.constant(each, np.int64) for each in children]
    features, limits, true, false = tables
    tracks = w.constant(missing, bool) if missing.any() else ""
    numbers = w.add("CastLike", x, limits)
    rows = w.add("Concat", w.add("Shape", x, start=0, end=1), w.ints(1), axis=0)
    at = w.add("Tile", w.constant([roots], np.int64), rows)
    for _ in range(_depth(roots, children, leaf, w)):
        met = w.add("GatherElements", numbers, w.add("Gather", features, at), axis=1)
        holds = w.add(COMPARISONS[next(iter(used))], met, w.add("Gather", limits, at))
        if tracks:
            holds = w.add("Or", holds, w.add("And", w.add("IsNaN", met), w.add("Gather", tracks, at)))
        at = w.add("Where", holds, w.add("Gather", true, at), w.add("Gather", false, at))
    return w.add("Gather", w.constant(kept, kept.dtype), at)


def _depth(roots: Any, children: Any, leaf: Any, w: BodyWriter) -> int:
    """How many steps the longest way from a root to a leaf has."""
    at, depth = np.array(roots, np.int64), 0
    while not leaf[at].all():
        at = np.unique(np.concatenate([each[at] for each in children]))
        depth += 1
        if depth > DEEPEST:
            raise w.refuse(f"of more than {DEEPEST} levels")
    return depth


def tree_regressor(w: BodyWriter) -> list[str]:
    count, how = int(w.attribute("n_targets", 1)), w.attribute("aggregate_function", "SUM")
    found = leaves(w, "target", count)
    reductions = {"SUM": "ReduceSum", "AVERAGE": "ReduceMean", "MIN": "ReduceMin", "MAX": "ReduceMax"}
    total = w.add(reductions[how], found, w.ints(1), keepdims=0)
    base = w.attribute("base_values")
    if base is not None and len(base):
        total = w.add("Add", total, w.add("CastLike", w.constant(base), total))
    if w.attribute("post_transform", "NONE") != "NONE":
        raise w.refuse(f"with post_transform {w.attribute('post_transform')}")
    return [w.add("Cast", total, to=1)]


def tree_classifier(w: BodyWriter) -> list[str]:
    """The labels and the scores; of two classes in ONNX Runtime's way, which ONNX does not define."""
    labels = w.attribute("classlabels_int64s", w.attribute("classlabels_ints"))
    if not labels:
        raise w.refuse("with labels that are texts", hint="labels that are numbers")
    ids, post, base = set(w.attribute("class_ids")), w.attribute("post_transform", "NONE"), w.attribute("base_values")
    base = [] if base is None else list(base)
    two = len(labels) == 2
    single = two and len(ids) == 1
    if two and (len(base) > 1 or (base and ids == {1})):
        raise w.refuse("of two classes with such base_values", got=str(base))
    if two and not single and list(labels) != [0, 1]:  # ONNX Runtime calls them 0 and 1 whatever their labels are
        raise w.refuse("of two classes other than 0 and 1, each with weights", got=str(list(labels)))
    found = leaves(w, "class", 1 if single else len(labels), only=single)
    total = w.add("Cast", w.add("ReduceSum", found, w.ints(1), keepdims=0), to=1)
    if base:
        total = w.add("Add", total, w.constant([base[0], 0.0] if two and not single else base))
    if not two:
        best = w.add("Gather", w.constant(labels, np.int64), w.add("ArgMax", total, axis=1, keepdims=0))
        return [best, transformed(w, total, post)]
    positive = single and min(w.attribute("class_weights")) >= 0
    second = total if single else w.add("Slice", total, w.ints(1), w.ints(2), w.ints(1))
    above = w.add("Greater", second, w.constant(0.5 if positive else 0.0))
    best = w.add("Gather", w.constant(labels, np.int64), w.add("Cast", w.add("Squeeze", above, w.ints(1)), to=7))
    if not single:
        return [best, transformed(w, total, post)]
    if ids == {1}:
        nothing = w.add("Mul", total, w.constant(0.0))
        return [best, transformed(w, w.add("Concat", nothing, total, axis=1), post)]
    if post not in ("NONE", "LOGISTIC"):
        raise w.refuse(f"of two classes with post_transform {post}")
    one_less = positive and post == "NONE"
    first = w.add("Sub", w.constant(1.0), total) if one_less else w.add("Neg", total)
    return [best, transformed(w, w.add("Concat", first, total, axis=1), post)]


def transformed(w: BodyWriter, scores: str, post: str) -> str:
    """Scores [samples, classes] after a post_transform."""
    if post == "NONE":
        return scores
    if post not in ("SOFTMAX", "LOGISTIC"):
        raise w.refuse(f"with post_transform {post}", expected="NONE, SOFTMAX or LOGISTIC")
    return w.add("Softmax", scores, axis=1) if post == "SOFTMAX" else w.add("Sigmoid", scores)
