"""The models that a server is tried with, in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gpu_run import device

VOCABULARY, CONTEXT = 100, 256  # of decoders
Node = tuple[str, str, str] | tuple[str, str, str, dict[str, Any]]  # operator, inputs, output, attributes


def write(
    folder: Path,
    name: str,
    nodes: Sequence[Node],
    ends: Mapping[str, Sequence[Any]],
    outputs: Sequence[str],
    weights: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """A model.

    Args:
        ends: the dimensions of inputs and outputs; `ids` is int64, others float32.
        outputs: which of them are outputs.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    infos = {
        end: helper.make_tensor_value_info(end, TensorProto.INT64 if end == "ids" else TensorProto.FLOAT, dims)
        for end, dims in ends.items()
    }
    made = [helper.make_node(node[0], node[1].split(), [node[2]], **(node[3:] or ({},))[0]) for node in nodes]
    constants = [numpy_helper.from_array(np.asarray(array), key) for key, array in weights.items()]
    inputs = [info for end, info in infos.items() if end not in outputs]
    graph = helper.make_graph(made, name, inputs, [infos[end] for end in outputs], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    helper.set_model_props(model, dict(metadata or {}))
    onnx.save(model, folder / f"{name}.onnx")


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def write_small(folder: Path) -> None:
    """A multilayer perceptron, and a convolution."""
    write_perceptron(folder)
    nodes = [
        ("Conv", "x k", "c"), ("Relu", "c", "r"), ("GlobalAveragePool", "r", "p"), ("Flatten", "p", "f"),
        ("MatMul", "f w", "y"),
    ]  # fmt: skip
    ends = {"x": ["batch", 3, 16, 16], "y": ["batch", 10]}
    write(folder, "conv", nodes, ends, ["y"], {"k": numbers(8, 3, 3, 3), "w": numbers(8, 10)})


def write_perceptron(folder: Path, metadata: Mapping[str, str] | None = None) -> None:
    nodes = [("MatMul", "x a", "h"), ("Relu", "h", "r"), ("MatMul", "r b", "y")]
    ends = {"x": ["batch", 64], "y": ["batch", 10]}
    write(folder, "mlp", nodes, ends, ["y"], {"a": numbers(64, 64), "b": numbers(64, 10)}, metadata)


def write_proven(folder: Path) -> None:
    """The perceptron with golden samples, which are the CPU provider's own."""
    from ox.graph.contract import Contract, Sample, TensorInfo
    from ox.serve.runtime.session import Engine
    from ox.serve.runtime.source import read

    write_perceptron(folder)
    engine = Engine(read(folder / "mlp.onnx"), "cpu", 1, 1)
    feeds = [{"x": numbers(1, 64, seed=seed)} for seed in range(3)]
    samples = tuple(Sample(feed, {"y": engine.run(feed)[0]}) for feed in feeds)
    x, y = TensorInfo("x", "FP32", ("batch", 64)), TensorInfo("y", "FP32", ("batch", 10))
    write_perceptron(folder, Contract((x,), (y,), samples).to_metadata())


def write_lengths(folder: Path) -> None:
    """A vector for each token, and their mean under a mask."""
    nodes: list[Node] = [
        ("Gather", "table ids", "each"), ("Unsqueeze", "mask last", "m"), ("Mul", "each m", "there"),
        ("ReduceSum", "there axis", "sum", {"keepdims": 0}), ("ReduceSum", "mask axis", "count", {"keepdims": 1}),
        ("Div", "sum count", "mean"),
    ]  # fmt: skip
    ends = {
        "ids": ["batch", "tokens"], "mask": ["batch", "tokens"], "each": ["batch", "tokens", 4], "mean": ["batch", 4],
    }  # fmt: skip
    weights = {"table": numbers(11, 4), "axis": np.array([1]), "last": np.array([2])}
    write(folder, "lengths", nodes, ends, ["each", "mean"], weights)


def wide_bytes() -> int:
    """Of the weights of `write_wide`."""
    return 4 << 20 if device.short() else 256 << 20


def write_wide(folder: Path) -> None:
    """A product with large weights."""
    columns = wide_bytes() // (4 * 1024)
    weights = np.resize(numbers(1021), (1024, columns)) / np.float32(32)
    ends = {"x": ["batch", 1024], "y": ["batch", 8]}
    nodes: list[Node] = [("MatMul", "x w", "h"), ("MatMul", "h v", "y")]
    write(folder, "wide", nodes, ends, ["y"], {"w": weights, "v": numbers(columns, 8) / np.float32(columns**0.5)})


def write_products(folder: Path) -> None:
    """The largest product of two numbers of a row, of all that there are."""
    nodes: list[Node] = [
        ("Unsqueeze", "x one", "rows"), ("Unsqueeze", "x two", "columns"), ("Mul", "rows columns", "all"),
        ("ReduceMax", "all both", "y", {"keepdims": 0}),
    ]  # fmt: skip
    weights = {"one": np.array([1]), "two": np.array([2]), "both": np.array([1, 2])}
    write(folder, "products", nodes, {"x": ["batch", "n"], "y": ["batch"]}, ["y"], weights)


@cache
def decoder(dtype: str) -> TemporaryDirectory[str]:
    """The folder of a decoder of two layers with a cache of a type, which goes with the process."""
    import ox
    from ox.export import save_decoder
    from ox_models.llama import LlamaConfig, LlamaForCausalLM

    ox.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(VOCABULARY, hidden_size=64, intermediate_size=64, max_position_embeddings=CONTEXT, **sizes)
    folder = TemporaryDirectory(prefix="ox-decoder-")
    save_decoder(LlamaForCausalLM(config).to(getattr(ox, dtype)), Path(folder.name) / "writer")
    return folder
