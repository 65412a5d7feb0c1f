"""Bodies of operators of `ai.onnx.ml`, as the converters of scikit-learn, XGBoost and LightGBM write them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ox.graph.reader.body_writer import BodyWriter
from ox.graph.reader.svm_bodies import classifier, regressor
from ox.graph.reader.tree_bodies import transformed, tree_classifier, tree_regressor


def _scaler(w: BodyWriter) -> list[str]:
    moved = w.add("Sub", _floats(w), w.constant(w.attribute("offset", [0.0])))
    return [w.add("Mul", moved, w.constant(w.attribute("scale", [1.0])))]


def _floats(w: BodyWriter) -> str:
    return w.add("Cast", w.input(0), to=1)


def _normalizer(w: BodyWriter) -> list[str]:
    x, how = _floats(w), w.attribute("norm", "MAX")
    kinds = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    norm = w.add(kinds[how], x, w.ints(-1), keepdims=1)
    zero = w.add("Equal", norm, w.constant(0.0))
    return [w.add("Div", x, w.add("Where", zero, w.constant(1.0), norm))]


def _binarizer(w: BodyWriter) -> list[str]:
    above = w.add("Greater", w.input(0), w.add("CastLike", w.constant(w.attribute("threshold", 0.0)), w.input(0)))
    return [w.add("CastLike", above, w.input(0))]


def _imputer(w: BodyWriter) -> list[str]:
    values, replaced = w.attribute("imputed_value_floats"), w.attribute("replaced_value_float", 0.0)
    if values is None:
        raise w.refuse("of whole numbers")
    x = w.input(0)
    missing = w.add("IsNaN", x) if np.isnan(replaced) else w.add("Equal", x, w.constant(replaced))
    return [w.add("Where", missing, w.constant(values), x)]


def _features(w: BodyWriter) -> list[str]:
    """Columns by number; those of one dimension are the columns of one row."""
    x = w.input(0)
    found = w.add("Gather", x, w.add("Reshape", w.input(1), w.ints(-1)), axis=-1)
    if w.rank(0) not in (1, None):
        return [found]
    before = w.add("Shape", found, end=-1)
    padded = w.add("Concat", w.ints(1), w.add("Shape", found), axis=0)
    some = w.add("Min", w.add("Shape", before), w.ints(1))  # [0] of a row, otherwise [1]
    return [w.add("Reshape", found, w.add("Slice", padded, some, w.ints(np.iinfo(np.int64).max), w.ints(0)))]


def _joined(w: BodyWriter) -> list[str]:
    """Rows beside each other, each cut or filled with zeros to as many features as `inputdimensions` say."""
    sizes = w.needed("inputdimensions")
    if len(sizes) != len(w.inputs):
        raise w.refuse("with other inputdimensions than inputs", expected=str(len(w.inputs)), got=str(list(sizes)))
    rows = []
    for place, size in enumerate(sizes):
        x = w.add("Cast", w.input(place), to=1)
        rank = w.rank(place)
        if rank != 2:
            first = w.add("Where", w.is_rank(x, 1), w.ints(1), w.add("Shape", x, start=0, end=1))
            x = w.add("Reshape", x, w.add("Concat", first, w.ints(-1), axis=0))
        filled = w.add("Pad", x, w.ints(0, size), w.constant(0.0), w.ints(1))
        rows.append(w.add("Slice", filled, w.ints(0), w.ints(size), w.ints(1)))
    return [w.add("Concat", *rows, axis=1)]


def _one_hot(w: BodyWriter) -> list[str]:
    known = w.attribute("cats_int64s")
    if not known:
        raise w.refuse("of texts")
    if not w.attribute("zeros", 1):
        raise w.refuse("that fails for what is no category (zeros=0)")
    numbers = w.add("Unsqueeze", w.add("Cast", w.input(0), to=7), w.ints(-1))
    return [w.add("Cast", w.add("Equal", numbers, w.constant(known, np.int64)), to=1)]


def _linear(w: BodyWriter, rows: int) -> str:
    coefficients = np.asarray(w.needed("coefficients"), np.float32).reshape(rows, -1)
    scores = w.add("MatMul", w.add("Cast", w.samples(0), to=1), w.constant(coefficients.T))
    intercepts = w.attribute("intercepts")
    return w.add("Add", scores, w.constant(intercepts)) if intercepts is not None and len(intercepts) else scores


def _linear_regressor(w: BodyWriter) -> list[str]:
    """One target stays as it is, whatever the post_transform, in ONNX Runtime."""
    targets = int(w.attribute("targets", 1))
    scores = _linear(w, targets)
    made = transformed(w, scores, w.attribute("post_transform", "NONE"))
    return [scores if targets == 1 else made]


def _linear_classifier(w: BodyWriter) -> list[str]:
    labels, intercepts = w.attribute("classlabels_ints"), w.attribute("intercepts", [])
    if not labels:
        raise w.refuse("with labels that are texts", hint="labels that are numbers")
    if len(intercepts) not in (0, len(labels)):
        raise w.refuse("with one score for two classes")
    scores = _linear(w, len(labels))
    best = w.add("ArgMax", scores, axis=1, keepdims=0)
    label = w.add("Gather", w.constant(labels, np.int64), best)
    return [label, transformed(w, scores, w.attribute("post_transform", "NONE"))]


def _scores(w: BodyWriter) -> list[str]:
    """ZipMap, a sequence of maps from labels to scores: the scores as a tensor, a column for each label."""
    return [w.add("Identity", w.input(0))]


BODIES: dict[str, Callable[[BodyWriter], list[str]]] = {
    "ArrayFeatureExtractor": _features,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _joined,
    "Imputer": _imputer,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "SVMClassifier": classifier,
    "SVMRegressor": regressor,
    "Scaler": _scaler,
    "TreeEnsembleClassifier": tree_classifier,
    "TreeEnsembleRegressor": tree_regressor,
    "ZipMap": _scores,
}
