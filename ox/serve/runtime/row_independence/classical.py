"""Operators of ai.onnx.ml, as scikit-learn's exporter writes them: rows of a table, each for itself."""

from __future__ import annotations

from collections.abc import Sequence

from ox.serve.runtime.row_independence.node import ML, Node, refuse, rule
from ox.serve.runtime.row_independence.size import Size
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixes, State, Tensor


@rule("Binarizer", "CategoryMapper", "Imputer", "Scaler", domain=ML)
def pointwise(node: Node) -> Tensor:
    """Element by element, with weights by column: a vector would be one row of columns."""
    x = node[0]
    if node.op in ("Imputer", "Scaler"):
        _table(x)
    return x.with_dims(x.sizes)


@rule("LabelEncoder", domain=ML)
def label_encoder(node: Node) -> Tensor:
    return node[0].with_dims(node[0].sizes)


def _table(x: Tensor) -> None:
    if x.axis is not None and (x.axis != 0 or x.rank != 2):
        raise Mixes("takes a table, and the rows are not the table's")


@rule("Normalizer", domain=ML)
def normalizer(node: Node) -> Tensor:
    _table(node[0])
    return node[0].with_dims(node[0].sizes)


@rule("LinearRegressor", "SVMRegressor", "TreeEnsemble", "TreeEnsembleRegressor", domain=ML)
def regressor(node: Node) -> Tensor:
    x = node[0]
    _table(x)
    return x.with_dims([x.sizes[0], _targets(node)]) if x.rank == 2 else UNKNOWN


def _targets(node: Node) -> Size:
    if node.op == "SVMRegressor":
        return 1
    found = node.attribute("targets" if node.op == "LinearRegressor" else "n_targets")
    if found is not None:
        return int(found.i)
    return 1 if node.op == "LinearRegressor" else node.symbols.fresh()


@rule("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier", domain=ML)
def classifier(node: Node) -> Sequence[State]:
    x = node[0]
    _table(x)
    if x.rank != 2:
        return [UNKNOWN, UNKNOWN]
    names = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
    many = max((len(found.strings) or len(found.ints) for name in names if (found := node.attribute(name))), default=0)
    scores: Size = many if many > 2 or (many == 2 and node.op != "SVMClassifier") else node.symbols.fresh()
    return [x.with_dims([x.sizes[0]]), x.with_dims([x.sizes[0], scores])]


@rule("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node) -> Tensor:
    first, total = node[0], 0
    width: Size = total
    for tensor in node.given:
        _table(tensor)
        if (tensor.axis, tensor.outer) != (first.axis, first.outer) or tensor.rank != 2:
            raise Mixes("with a tensor that is not there once for each row")
        if first.axis is not None and tensor.sizes[0] != first.sizes[0]:
            raise Mixes("rows meet other rows")
        width = width + tensor.sizes[1]
    return first.with_dims([first.sizes[0], width])


@rule("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node) -> Tensor:
    x = node[0]
    found = node.attribute("cats_int64s") or node.attribute("cats_strings")
    many = 0 if found is None else len(found.ints) or len(found.strings)
    return x.with_dims([*x.sizes, many])


@rule("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node) -> Tensor:
    """Picks columns of the last axis."""
    node.fixed(1)
    x, indices = node[0], node[1]
    if x.axis is not None and x.axis == x.rank - 1:
        raise Mixes("picks rows out of the batch")
    if indices.dims is None or x.rank < 2:
        return x.with_dims([*x.sizes[:-1], node.symbols.fresh()]) if x.rank > 1 else UNKNOWN
    count: Size = 1
    for size in indices.sizes:
        count = count * size
    return x.with_dims([*x.sizes[:-1], count])


refuse(("CastMap", "DictVectorizer", "ZipMap"), "maps are not followed", ML)
