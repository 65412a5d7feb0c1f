"""Support vector machines and ZipMap of scikit-learn's converter, beside ONNX Runtime's kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from one_call import IMPORTS, check, written
from onnx import TensorProto, helper
from rows import rows

import ox
from ox.errors import LoadError

R = np.random.default_rng(0)
X = R.normal(size=(30, 4)).astype(np.float32)
ML = "ai.onnx.ml"
KERNELS = {
    "LINEAR": [0.0, 0.0, 0.0],
    "POLY": [0.5, 1.0, 3.0],
    "RBF": [0.3, 0.0, 0.0],
    "SIGMOID": [0.2, 0.1, 0.0],
}


def numbers(*shape: int) -> list[float]:
    return [float(x) for x in R.normal(size=shape).ravel()]


@rows("one_class", [0, 1])
@rows("kernel", KERNELS)
def test_regression(tmp_path: Path, kernel: str, one_class: int) -> None:
    check(
        tmp_path, "SVMRegressor", [X], domain=ML, trained=not one_class, atol=1e-4, kernel_type=kernel,
        kernel_params=KERNELS[kernel], n_supports=6, support_vectors=numbers(6, 4), coefficients=numbers(6),
        rho=[0.4], one_class=one_class,
    )  # fmt: skip


def test_linear_regression(tmp_path: Path) -> None:
    check(
        tmp_path,
        "SVMRegressor",
        [X],
        domain=ML,
        coefficients=numbers(4),
        rho=[0.3],
        n_supports=0,
        kernel_params=[0.0, 0.0, 0.0],
    )


def machine(classes: int, kernel: str, **more: Any) -> dict[str, Any]:
    counts = [3, 2, 4, 2][:classes]
    pairs = classes * (classes - 1) // 2
    return {
        "kernel_type": kernel, "kernel_params": KERNELS[kernel], "vectors_per_class": counts,
        "support_vectors": numbers(sum(counts), 4), "coefficients": numbers(classes - 1, sum(counts)),
        "rho": numbers(pairs), "classlabels_ints": [5, 1, 9, 4][:classes], **more,
    }  # fmt: skip


def classified(folder: Path, **attributes: Any) -> None:
    check(
        folder, "SVMClassifier", [X], [0, 1], domain=ML, kinds=[TensorProto.INT64, TensorProto.FLOAT], atol=1e-4,
        **attributes,
    )  # fmt: skip


@rows("classes", [2, 3, 4])
@rows("kernel", KERNELS)
def test_votes(tmp_path: Path, kernel: str, classes: int) -> None:
    classified(tmp_path, **machine(classes, kernel))


@rows("classes", [2, 3, 4])
@rows("post", ["LOGISTIC", "SOFTMAX"])
def test_votes_and_scores(tmp_path: Path, post: str, classes: int) -> None:
    if classes == 2 and post == "SOFTMAX":
        return
    classified(tmp_path, **machine(classes, "RBF", post_transform=post))


@rows("classes", [2, 3, 4])
@rows("kernel", ["LINEAR", "RBF"])
def test_probabilities(tmp_path: Path, kernel: str, classes: int) -> None:
    pairs = classes * (classes - 1) // 2
    slopes = [-abs(x) for x in numbers(pairs)]
    classified(tmp_path, **machine(classes, kernel, prob_a=slopes, prob_b=numbers(pairs)))


@rows("positive", [False, True])
@rows("classes", [2, 3])
def test_linear_decisions(tmp_path: Path, classes: int, positive: bool) -> None:
    weights = numbers(classes, 4)
    classified(
        tmp_path, coefficients=[abs(x) if positive else x for x in weights], rho=[0.2],
        classlabels_ints=[5, 1, 9][:classes], kernel_params=[0.0, 0.0, 0.0],
    )  # fmt: skip


REFUSED = {
    "texts": ({"classlabels_ints": None, "classlabels_strings": ["a", "b"]}, "labels that are texts"),
    "two classes": ({"post_transform": "SOFTMAX"}, "two classes with post_transform SOFTMAX"),
    "another transform": (machine(3, "RBF", post_transform="PROBIT"), "post_transform PROBIT"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_body_covers(tmp_path: Path, name: str) -> None:
    more, says = REFUSED[name]
    attributes = {key: value for key, value in (machine(2, "RBF") | more).items() if value is not None}
    path = written(tmp_path / "m.onnx", "SVMClassifier", [X], [(0, 7), (1, 1)], ML, **attributes)
    with pytest.raises(LoadError, match=says):
        ox.export.load(path)


def test_scores_by_label(tmp_path: Path) -> None:
    """A ZipMap at the end: the scores are a tensor, whose columns are the labels in their order."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["scores"], axis=1),
        helper.make_node("ZipMap", ["scores"], ["y"], domain=ML, classlabels_strings=["a", "b", "c", "d"]),
    ]
    maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_value_info("y", maps)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=IMPORTS, ir_version=8), tmp_path / "m.onnx")
    expected = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"x": X})[0]
    net = ox.export.load(tmp_path / "m.onnx")
    ox.export.save(net, tmp_path / "again.onnx", X)
    again = ort.InferenceSession(tmp_path / "again.onnx").run(None, {"x": X})[0]
    for scores in (net(ox.from_numpy(X)).numpy(), again):
        np.testing.assert_allclose(scores, [[row[label] for label in "abcd"] for row in expected], atol=1e-6)
