"""Operators of other domains, which ox reads as bodies of its own: they give what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from one_call import check
from onnx import TensorProto, helper, numpy_helper
from rows import rows

import ox
from ox.errors import LoadError

ML, VENDOR = "ai.onnx.ml", "com.microsoft"
X = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)


def write(
    path: Path, op: str, domain: str, inputs: dict[str, Any], outputs: int = 1, *, rows: Any = "n", **attributes: Any
) -> Path:
    """A file with one call; its first input is the graph's, of so many rows, and the others are weights."""
    (first, x), *weights = inputs.items()
    node = helper.make_node(op, list(inputs), [f"y{i}" for i in range(outputs)], "call", domain=domain, **attributes)
    described = helper.make_tensor_value_info(first, helper.np_dtype_to_tensor_dtype(x.dtype), [rows, *x.shape[1:]])
    kinds = [TensorProto.INT64 if outputs == 2 and i == 0 else TensorProto.FLOAT for i in range(outputs)]
    graph = helper.make_graph(
        [node], "g", [described],
        [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(kinds)],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in weights if name],
    )  # fmt: skip
    imports = [helper.make_opsetid(domain, 3 if domain == ML else 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def same(path: Path, x: Any) -> None:
    """Loaded, and saved again."""
    expected = ort.InferenceSession(path).run(None, {"x": x})
    net = ox.export.load(path)
    with ox.no_grad():
        got = net(ox.from_numpy(x))
    got = got if isinstance(got, tuple) else (got,)
    again = path.with_name("again.onnx")
    ox.export.save(net, again, x)
    for wanted, *found in zip(expected, got, ort.InferenceSession(again).run(None, {"x": x}), strict=True):
        for each in (np.asarray(y) for y in found):
            assert each.shape == wanted.shape and each.dtype == wanted.dtype
            np.testing.assert_allclose(each, wanted, rtol=1e-5, atol=1e-5)


CASES: dict[str, tuple[str, dict[str, Any], int, dict[str, Any]]] = {
    "Scaler": ("Scaler", {"x": X}, 1, {"offset": [0.1, 0.2, 0.3, 0.4], "scale": [2.0, 1.0, 0.5, 3.0]}),
    "Scaler, one for all": ("Scaler", {"x": X}, 1, {"offset": [0.1], "scale": [2.0]}),
    **{f"Normalizer {n}": ("Normalizer", {"x": np.abs(X)}, 1, {"norm": n}) for n in ("MAX", "L1", "L2")},
    "Normalizer of nothing": ("Normalizer", {"x": 0 * X}, 1, {"norm": "L2"}),
    "Binarizer": ("Binarizer", {"x": X}, 1, {"threshold": 0.3}),
    "Imputer": (
        "Imputer",
        {"x": np.where(X > 1, np.nan, X).astype(np.float32)},
        1,
        {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")},
    ),
    "ArrayFeatureExtractor": ("ArrayFeatureExtractor", {"x": X, "i": np.array([[2, 0]])}, 1, {}),
    "FeatureVectorizer": ("FeatureVectorizer", {"x": X}, 1, {"inputdimensions": [4]}),
    "OneHotEncoder": ("OneHotEncoder", {"x": np.array([3, 1, 7, 1])}, 1, {"cats_int64s": [1, 3, 5], "zeros": 1}),
    "LinearRegressor": (
        "LinearRegressor",
        {"x": X},
        1,
        {"coefficients": [float(n) for n in range(8)], "intercepts": [0.5, -1.0], "targets": 2},
    ),
    **{
        f"LinearClassifier {post}": (
            "LinearClassifier",
            {"x": X},
            2,
            {
                "coefficients": X[:3].ravel().tolist(),
                "intercepts": [0.1, 0.0, -0.2],
                "classlabels_ints": [5, 1, 9],
                "post_transform": post,
            },
        )
        for post in ("NONE", "SOFTMAX", "LOGISTIC")
    },
}


@rows("name", CASES)
def test_classical(tmp_path: Path, name: str) -> None:
    op, inputs, outputs, attributes = CASES[name]
    same(write(tmp_path / "m.onnx", op, ML, inputs, outputs, **attributes), inputs["x"])


ROW, LINEAR = X[0], {"coefficients": X[1:4].ravel().tolist(), "intercepts": [0.1, 0.0, -0.2]}
MACHINE = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "support_vectors": X[:3].ravel().tolist()}
MACHINE |= {"coefficients": [0.5, -1.0, 2.0], "rho": [0.3]}
SHAPES: dict[str, tuple[str, list[Any], list[int], dict[str, Any]]] = {
    "columns of a row": ("ArrayFeatureExtractor", [ROW, np.array([1, 3])], [1], {}),
    "columns of a cube": ("ArrayFeatureExtractor", [X.reshape(3, 3, 4), np.array([1, 3])], [1], {}),
    "rows that are cut and filled": ("FeatureVectorizer", [X, X[:, :2]], [1], {"inputdimensions": [3, 4]}),
    "one row": ("FeatureVectorizer", [ROW, ROW], [1], {"inputdimensions": [4, 3]}),
    "rows of more dimensions": ("FeatureVectorizer", [X.reshape(3, 3, 4), X[:3]], [1], {"inputdimensions": [12, 4]}),
    "linear, of a row": ("LinearRegressor", [ROW], [1], LINEAR | {"targets": 3}),
    "linear classes of a row": ("LinearClassifier", [ROW], [7, 1], LINEAR | {"classlabels_ints": [4, 5, 6]}),
    "a machine, of a row": ("SVMRegressor", [ROW], [1], MACHINE | {"n_supports": 3}),
    "classes of a row": (
        "SVMClassifier", [ROW], [7, 1], MACHINE | {"classlabels_ints": [0, 1], "vectors_per_class": [1, 2]},
    ),
    **{
        f"one target, {post}": (
            "LinearRegressor", [X], [1], {"coefficients": [1.0, 2.0, 3.0, 4.0], "targets": 1, "post_transform": post},
        )
        for post in ("SOFTMAX", "LOGISTIC")
    },
}  # fmt: skip


@rows("ranks", [True, False])
@rows("name", SHAPES)
def test_classical_shapes(tmp_path: Path, name: str, ranks: bool) -> None:
    op, inputs, kinds, attributes = SHAPES[name]
    used = range(len(kinds))
    check(tmp_path, op, inputs, used, domain=ML, kinds=kinds, ranks=ranks, trained=False, **attributes)


def trees(kind: str, count: int, mode: str, seed: int, targets: list[int], positive: bool = False) -> dict[str, Any]:
    """Attributes of trees of several depths; their inner nodes compare by `mode`."""
    random = np.random.default_rng(seed)
    found: dict[str, list[Any]] = {
        f"nodes_{key}": []
        for key in (
            "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
            "missing_value_tracks_true",
        )
    }  # fmt: skip
    ends: dict[str, list[Any]] = {f"{kind}_{key}": [] for key in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(count):
        waiting, used = [(0, int(random.integers(0, 4)))], 1
        while waiting:
            node, depth = waiting.pop()
            children = (used, used + 1) if depth else (0, 0)
            row = (
                tree, node, int(random.integers(0, 4)), float(random.normal()), mode if depth else "LEAF", *children,
                int(random.integers(0, 2)),
            )  # fmt: skip
            for each, value in zip(found.values(), row, strict=True):
                each.append(value)
            if depth:
                used += 2
                waiting += [(children[0], depth - 1), (children[1], int(random.integers(0, depth)))]
                continue
            for target in targets:
                weight = float(random.normal())
                for each, value in zip(ends.values(), (tree, node, target, abs(weight) if positive else weight)):  # noqa: B905
                    each.append(value)
    return {**found, **ends}


@rows("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
def test_regression_trees(tmp_path: Path, mode: str) -> None:
    more = trees("target", 6, mode, 1, [0, 1])
    x = np.where(X > 1.2, np.nan, X).astype(np.float32)
    path = write(
        tmp_path / "m.onnx", "TreeEnsembleRegressor", ML, {"x": x}, n_targets=2, base_values=[0.5, -1.0], **more
    )
    same(path, x)


@pytest.mark.parametrize("how", ["AVERAGE", "MIN", "MAX"])
def test_how_trees_are_joined(tmp_path: Path, how: str) -> None:
    more = trees("target", 5, "BRANCH_LEQ", 2, [0])
    same(
        write(tmp_path / "m.onnx", "TreeEnsembleRegressor", ML, {"x": X}, n_targets=1, aggregate_function=how, **more),
        X,
    )


@rows("positive", [True, False])
@rows(
    ("labels", "targets", "post", "base"),
    [
        ([3, 7, 1], [0, 1, 2], "NONE", []),
        ([3, 7, 1], [0, 1, 2], "SOFTMAX", [0.1, 0.2, -0.5]),
        ([0, 1], [0, 1], "LOGISTIC", [0.3]),
        ([0, 1], [0], "LOGISTIC", [0.3]),
        ([4, 2], [0], "NONE", []),
        ([4, 2], [1], "SOFTMAX", []),
    ],
)
def test_classification_trees(
    tmp_path: Path, labels: list[int], targets: list[int], post: str, base: list[float], positive: bool
) -> None:
    more = trees("class", 5, "BRANCH_LEQ", 3, targets, positive) | ({"base_values": base} if base else {})
    more |= {"classlabels_int64s": labels, "post_transform": post}
    same(write(tmp_path / "m.onnx", "TreeEnsembleClassifier", ML, {"x": X}, 2, **more), X)


R = np.random.default_rng(1)
ROWS = R.normal(size=(3, 5, 8)).astype(np.float32)
MATRIX = R.normal(size=(4, 5)).astype(np.float32)
VECTOR = R.normal(size=8).astype(np.float32)
PACKED = {"x": R.normal(size=(3, 40)).astype(np.float32), "w": R.integers(0, 256, (6, 3, 8), np.uint8)}
SCALES = R.random((6, 3), np.float32)
VENDORS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Gelu": ("Gelu", {"x": ROWS}, {}),
    "BiasGelu": ("BiasGelu", {"x": ROWS, "b": VECTOR}, {}),
    "FastGelu": ("FastGelu", {"x": ROWS, "b": VECTOR}, {}),
    "QuickGelu": ("QuickGelu", {"x": ROWS}, {"alpha": 1.5}),
    "FusedMatMul": ("FusedMatMul", {"x": ROWS, "w": MATRIX}, {"alpha": 0.5, "transA": 1, "transB": 1}),
    "SkipLayerNormalization": (
        "SkipLayerNormalization", {"x": ROWS, "s": ROWS[:, ::-1].copy(), "g": VECTOR, "b": VECTOR}, {},
    ),
    "MatMulNBits": ("MatMulNBits", {**PACKED, "s": SCALES}, {"K": 40, "N": 6, "bits": 4, "block_size": 16}),
    "MatMulNBits with zeros": (
        "MatMulNBits",
        {**PACKED, "s": SCALES, "z": R.integers(0, 256, (6, 2), np.uint8)},
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    ),
    "MatMulNBits with zeros that are floats": (
        "MatMulNBits",
        {**PACKED, "s": SCALES, "z": 15 * SCALES},
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    ),
}  # fmt: skip


@rows("name", VENDORS)
def test_of_the_runtime(tmp_path: Path, name: str) -> None:
    op, inputs, attributes = VENDORS[name]
    rows = 3 if op == "SkipLayerNormalization" else "n"  # its second input has as many
    same(write(tmp_path / "m.onnx", op, VENDOR, inputs, rows=rows, **attributes), inputs["x"])


QKV, BIAS = R.normal(size=(8, 24)).astype(np.float32), R.normal(size=24).astype(np.float32)
MASKS: dict[str, Any] = {
    "no mask": None,
    "each token": np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0]], np.int32),
    "ends": np.array([5, 2, 3], np.int32),
    "ends and beginnings": np.array([5, 2, 4, 0, 0, 1], np.int32),
    "each query": R.integers(0, 2, (3, 5, 5)).astype(np.int32),
    "each query, causal": np.broadcast_to(np.tril(np.ones((5, 5), np.int32)), (3, 5, 5)).copy(),
    "no mask, for each sample": np.array([[1], [0], [5]], np.int32),
    "no mask, for all": np.array([[0]], np.int32),
}


@rows("more", [{}, {"unidirectional": 1}, {"scale": 0.7, "mask_filter_value": -3.0}])
@rows("name", MASKS)
def test_attention(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    inputs = {"x": ROWS, "w": QKV, "b": BIAS} | ({} if MASKS[name] is None else {"m": MASKS[name]})
    rows = "n" if MASKS[name] is None else 3
    same(write(tmp_path / "m.onnx", "Attention", VENDOR, inputs, rows=rows, num_heads=2, **more), ROWS)


@pytest.mark.parametrize("whole", [True, False])
def test_embeddings(tmp_path: Path, whole: bool) -> None:
    """With segments, a mask and numbers of places, or without."""
    tokens = R.integers(0, 9, (3, 5)).astype(np.int32)
    words, places, kinds = (R.normal(size=(n, 8)).astype(np.float32) for n in (9, 6, 2))
    segments, more = ({"s": tokens % 2}, {"k": kinds}) if whole else ({"": None}, {"": None})
    further = {"m": MASKS["each token"], "p": np.array([[1, 2, 3, 4, 5]] * 3, np.int32)} if whole else {}
    node = ["x", *segments, "w", "p0", *more, "g", "b", *further]
    arrays = {"x": tokens, **segments, "w": words, "p0": places, **more, "g": VECTOR, "b": VECTOR, **further}
    graph = helper.make_graph(
        [helper.make_node("EmbedLayerNormalization", node, ["y", "count"], "call", domain=VENDOR)], "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, [3, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None), helper.make_tensor_value_info("count", 6, None)],
        [numpy_helper.from_array(each, k) for k, each in arrays.items() if k not in ("", "x")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 14), helper.make_opsetid(VENDOR, 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "m.onnx")
    same(tmp_path / "m.onnx", tokens)


REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "labels that are texts": (
        "LinearClassifier", ML, {"coefficients": [1.0] * 8, "classlabels_strings": ["a", "b"]}, "labels that are texts",
    ),
    "another post_transform": (
        "LinearRegressor", ML, {"coefficients": [1.0] * 4, "post_transform": "PROBIT"}, "post_transform PROBIT",
    ),
    "an operator without a body": (
        "LabelEncoder", ML, {"keys_int64s": [0, 1], "values_int64s": [3, 4]},
        "ox has no operator ai.onnx.ml.LabelEncoder",
    ),
    "rotary places": ("Attention", VENDOR, {"num_heads": 2, "do_rotary": 1}, "rotary places"),
    "a bias of the scores": ("Attention", VENDOR, {"num_heads": 2}, "bias of the scores"),
    "blocks of nothing": ("MatMulNBits", VENDOR, {"K": 40, "N": 6, "block_size": 0}, "with such a block_size"),
    "no coefficients": ("LinearRegressor", ML, {}, "without coefficients"),
    "no coefficients of a machine": ("SVMRegressor", ML, {"rho": [0.5]}, "without coefficients"),
    "8 bits": ("MatMulNBits", VENDOR, {"K": 40, "N": 6, "bits": 8, "block_size": 16}, "of 8 bits"),
}  # fmt: skip


@rows("name", REFUSED)
def test_what_no_body_covers(tmp_path: Path, name: str) -> None:
    op, domain, attributes, says = REFUSED[name]
    weights = {"w": PACKED["w"], "s": SCALES} if domain == VENDOR else {}
    if "bias" in name:  # the sixth input
        weights |= {"mask": SCALES, "": None, "bias": SCALES}
    path = write(tmp_path / "m.onnx", op, domain, {"x": X, **weights}, **attributes)
    with pytest.raises(LoadError, match=says) as caught:
        ox.export.load(path)
    assert "call" in str(caught.value.where)


def test_nodes_that_compare_in_several_ways(tmp_path: Path) -> None:
    more = trees("target", 3, "BRANCH_LEQ", 1, [0])
    inner = more["nodes_modes"].index("BRANCH_LEQ")
    more["nodes_modes"][inner] = "BRANCH_LT"
    path = write(tmp_path / "m.onnx", "TreeEnsembleRegressor", ML, {"x": X}, n_targets=1, **more)
    with pytest.raises(LoadError, match="compare in several ways"):
        ox.export.load(path)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"classlabels_int64s": [4, 2]}, "two classes other than 0 and 1"),
        ({"classlabels_int64s": [0, 1], "base_values": [0.1, 0.2]}, "such base_values"),
        ({"classlabels_strings": ["a", "b"]}, "labels that are texts"),
    ],
)
def test_classes_that_no_body_covers(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    more |= trees("class", 3, "BRANCH_LEQ", 1, [0, 1])
    path = write(tmp_path / "m.onnx", "TreeEnsembleClassifier", ML, {"x": X}, 2, **more)
    with pytest.raises(LoadError, match=says):
        ox.export.load(path)


def test_a_linear_model_is_trained(tmp_path: Path) -> None:
    """Coefficients are parameters."""
    path = write(
        tmp_path / "m.onnx", "LinearRegressor", ML, {"x": X}, coefficients=[0.0] * 4, intercepts=[0.0], targets=1
    )
    net = ox.export.load(path).train()
    y = ox.from_numpy(X @ np.array([[1.0], [2.0], [-1.0], [0.5]], np.float32) + 3)
    optimizer = ox.optim.Adam(net.parameters(), lr=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        loss = (net(ox.from_numpy(X)) - y).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-2
