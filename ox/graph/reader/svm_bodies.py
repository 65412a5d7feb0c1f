"""Bodies of support vector machines: SVMRegressor and SVMClassifier of `ai.onnx.ml`, as ONNX Runtime computes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ox.graph.reader.body_writer import BodyWriter
from ox.graph.reader.tree_bodies import transformed

FLOAT, INT64, BOOL = 1, 7, 9
ROUNDS, CLOSE = 100, 0.005  # of the probabilities of several classes, and how near they are then, times the classes


def regressor(w: BodyWriter) -> list[str]:
    """Kernels times coefficients; with `one_class`, 1 inside and -1 outside."""
    if w.attribute("post_transform", "NONE") != "NONE":
        raise w.refuse(f"with post_transform {w.attribute('post_transform')}")
    count = int(w.attribute("n_supports", 0))
    x, weights = w.add("Cast", w.samples(0), to=FLOAT), _floats(w, "coefficients")
    kernels = _kernels(w, x, _floats(w, "support_vectors").reshape(count, -1)) if count else x
    scores = w.add("Add", w.add("MatMul", kernels, w.constant(weights.reshape(-1, 1))), w.constant(w.needed("rho")[:1]))
    if w.attribute("one_class", 0):
        inside = w.add("Greater", scores, w.constant(0.0))
        scores = w.add("Where", inside, w.constant(1.0), w.constant(-1.0))
    return [scores]


def classifier(w: BodyWriter) -> list[str]:
    """Labels and scores: one against one, with votes; or of linear scores without support vectors."""
    labels = w.attribute("classlabels_ints")
    if not labels:
        raise w.refuse("with labels that are texts", hint="labels that are numbers")
    post, counts = w.attribute("post_transform", "NONE"), [int(n) for n in w.attribute("vectors_per_class", [])]
    x, weights = w.add("Cast", w.samples(0), to=FLOAT), _floats(w, "coefficients")
    known = w.constant(labels, np.int64)
    if not sum(counts):
        best, scores = _linear(w, x, weights.reshape(len(labels), -1))
        return [w.add("Gather", known, best), transformed(w, scores, post)]
    kernels = _kernels(w, x, _floats(w, "support_vectors").reshape(sum(counts), -1))
    pairs = list(combinations(range(len(labels)), 2))
    against = _one_against_one(weights.reshape(len(labels) - 1, -1), counts, pairs)
    bias = w.constant(w.needed("rho")[: len(pairs)])
    scores = w.add("Add", w.add("MatMul", kernels, w.constant(against)), bias)
    label = w.add("Gather", known, w.add("ArgMax", _votes(w, scores, pairs, len(labels)), axis=1, keepdims=0))
    if len(w.attribute("prob_a", [])):
        return [label, transformed(w, _probabilities(w, scores, pairs, len(labels)), post)]
    if len(labels) == 2:
        return [label, _two(w, scores, post)]
    return [label, transformed(w, scores, post)]


def _floats(w: BodyWriter, name: str) -> Any:
    return np.asarray(w.needed(name), np.float32)


def _kernels(w: BodyWriter, x: str, vectors: Any) -> str:
    """[samples, vectors]: how alike each sample and each support vector are."""
    gamma, shift, degree = (w.constant(float(n)) for n in [*w.attribute("kernel_params", []), 0.0, 0.0, 0.0][:3])
    kind = w.attribute("kernel_type", "LINEAR")
    if kind == "RBF":
        apart = w.add("Sub", w.add("Unsqueeze", x, w.ints(1)), w.constant(vectors))
        far = w.add("ReduceSumSquare", apart, w.ints(-1), keepdims=0)
        return w.add("Exp", w.add("Neg", w.add("Mul", gamma, far)))
    product = w.add("MatMul", x, w.constant(vectors.T))
    if kind == "LINEAR":
        return product
    shifted = w.add("Add", w.add("Mul", gamma, product), shift)
    if kind == "POLY":
        return w.add("Pow", shifted, degree)
    if kind == "SIGMOID":
        return w.add("Tanh", shifted)
    raise w.refuse(f"with the kernel {kind}", expected="LINEAR, POLY, RBF or SIGMOID")


def _one_against_one(weights: Any, counts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Any:
    """[vectors, pairs]: the weight of each vector in the decision between two classes."""
    ends = np.cumsum([0, *counts])
    columns = np.zeros((ends[-1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        columns[ends[i] : ends[i + 1], column] = weights[j - 1, ends[i] : ends[i + 1]]
        columns[ends[j] : ends[j + 1], column] = weights[i, ends[j] : ends[j + 1]]
    return columns


def _votes(w: BodyWriter, scores: str, pairs: Sequence[tuple[int, int]], classes: int) -> str:
    """How many of its decisions each class wins, [samples, classes]."""
    first, second = (np.eye(classes, dtype=np.float32)[[pair[k] for pair in pairs]] for k in (0, 1))
    won = w.add("Cast", w.add("Greater", scores, w.constant(0.0)), to=FLOAT)
    return w.add("Add", w.add("MatMul", won, w.constant(first - second)), w.constant(second.sum(0)))


def _two(w: BodyWriter, scores: str, post: str) -> str:
    """The columns of two classes, of one decision."""
    if post not in ("NONE", "LOGISTIC"):
        raise w.refuse(f"of two classes with post_transform {post}")
    both = w.add("Concat", w.add("Neg", scores), scores, axis=1)
    return w.add("Sigmoid", both) if post == "LOGISTIC" else both


def _linear(w: BodyWriter, x: str, weights: Any) -> tuple[str, str]:
    """The best class and the scores of linear decisions."""
    scores = w.add("Add", w.add("MatMul", x, w.constant(weights.T)), w.constant(w.needed("rho")[:1]))
    best = w.add("ArgMax", scores, axis=1, keepdims=0)
    if len(weights) == 2 and not len(w.attribute("prob_a", [])):  # the second one where the larger score says so
        largest = w.add("ReduceMax", scores, w.ints(1), keepdims=0)
        positive = bool((weights >= 0).all())
        above = w.add(
            *(("GreaterOrEqual", largest, w.constant(0.5)) if positive else ("Greater", largest, w.constant(0.0)))
        )
        best = w.add("Where", above, w.constant(1, np.int64), best)
    return best, scores


def _probabilities(w: BodyWriter, scores: str, pairs: Sequence[tuple[int, int]], classes: int) -> str:
    """Probabilities [samples, classes] from those of pairs, in steps (Wu, Lin and Weng, "Probability estimates for
    multi-class classification by pairwise coupling", 2004, algorithm 2)."""
    slope, shift = (w.constant(w.attribute(name)[: len(pairs)]) for name in ("prob_a", "prob_b"))
    logistic = w.add("Sigmoid", w.add("Neg", w.add("Add", w.add("Mul", scores, slope), shift)))
    won = w.add("Clip", logistic, w.constant(1e-7), w.constant(np.float32(1) - np.float32(1e-7)))
    lost = w.add("Sub", w.constant(1.0), won)
    first, second = (np.eye(classes, dtype=np.float32)[[pair[k] for pair in pairs]] for k in (0, 1))
    at = [
        w.constant(np.einsum("pi,pj->pij", a, b).reshape(len(pairs), -1)) for a, b in ((first, second), (second, first))
    ]
    flat = w.add("Add", w.add("MatMul", won, at[0]), w.add("MatMul", lost, at[1]))
    beats = w.add("Reshape", flat, w.ints(0, classes, classes))  # [samples, i, j]: i is it, not j
    turned = w.add("Transpose", beats, perm=[0, 2, 1])
    own = w.add("ReduceSumSquare", beats, w.ints(1), keepdims=0)
    diagonal = w.add("Mul", w.add("Unsqueeze", own, w.ints(1)), w.constant(np.eye(classes)))
    system = w.add("Sub", diagonal, w.add("Mul", beats, turned))
    start = w.add("Add", w.add("Mul", own, w.constant(0.0)), w.constant(1 / classes))
    return w.loop(ROUNDS, start, lambda p: _coupled(w, system, p, classes))


def _coupled(w: BodyWriter, system: str, p: str, classes: int) -> tuple[str, str]:
    """Whether any sample goes on, and the next probabilities; those that are near enough stay."""

    def times(x: str) -> str:
        return w.add("Squeeze", w.add("MatMul", system, w.add("Unsqueeze", x, w.ints(2))), w.ints(2))

    product = times(p)
    whole = w.add("ReduceSum", w.add("Mul", p, product), w.ints(1), keepdims=1)
    error = w.add("ReduceMax", w.add("Abs", w.add("Sub", product, whole)), w.ints(1), keepdims=1)
    going = w.add("GreaterOrEqual", error, w.constant(CLOSE / classes))
    now = p
    for t in range(classes):
        column = w.add("Gather", system, w.constant(t, np.int64), axis=2)  # [samples, classes]
        corner, value = (w.add("Slice", x, w.ints(t), w.ints(t + 1), w.ints(1)) for x in (column, product))
        step = w.add("Div", w.add("Sub", whole, value), corner)
        longer = w.add("Add", w.constant(1.0), step)
        twice = w.add("Add", w.add("Mul", step, corner), w.add("Add", value, value))
        whole = w.add("Div", w.add("Add", whole, w.add("Mul", step, twice)), w.add("Mul", longer, longer))
        product = w.add("Div", w.add("Add", product, w.add("Mul", step, column)), longer)
        unit = w.constant(np.eye(classes)[t][None])
        now = w.add("Div", w.add("Add", now, w.add("Mul", step, unit)), longer)
    some = w.add("Cast", w.add("ReduceMax", w.add("Cast", going, to=INT64), keepdims=0), to=BOOL)
    return some, w.add("Where", going, now, p)
