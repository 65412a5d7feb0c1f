"""The forms in which a file is run: each gives the file's own scores, and what differs is not used."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from generation_client import CONTEXT, END, prompts
from onnx import helper, numpy_helper

import ox
from ox.errors import LoadError
from ox.serve.generation.decoder import Decoder, Rewriting
from ox.serve.generation.decoder_run import SharedCacheRun
from ox.serve.runtime.decoder_graph import LENGTHS, SCORED, TOTAL, DecoderGraph
from ox.serve.runtime.source import read


def changed(folder: Path, to: Path, change: Callable[[onnx.GraphProto], None]) -> Path:
    """A copy of a decoder's folder with another graph."""
    shutil.copytree(folder, to)
    model = onnx.load(to / "model.onnx")
    change(model.graph)
    onnx.save(model, to / "model.onnx")
    return to


def hide_the_pattern(graph: onnx.GraphProto) -> None:
    """The cache goes through an operator that is none."""
    for node in list(graph.node):
        if node.op_type == "Concat" and node.input[0].startswith("past_key_values."):
            graph.node.insert(0, helper.make_node("Abs", [node.input[0]], [f"{node.output[0]}.abs"]))
            graph.node.insert(1, helper.make_node("Sign", [node.input[0]], [f"{node.output[0]}.sign"]))
            parts = [f"{node.output[0]}.abs", f"{node.output[0]}.sign"]
            graph.node.insert(2, helper.make_node("Mul", parts, [f"{node.output[0]}.same"]))
            node.input[0] = f"{node.output[0]}.same"


def add_a_bias(graph: onnx.GraphProto, power: float = 1.0) -> None:
    """Scores of attention fall with the place of a token, as in ALiBi: the pattern is there, the result is another."""
    softmax = next(node for node in graph.node if node.op_type == "Softmax")
    place = list(graph.node).index(softmax)
    before = softmax.input[0]
    graph.initializer.append(numpy_helper.from_array(np.float32(-0.5), "slope"))
    graph.initializer.append(numpy_helper.from_array(np.float32(power), "power"))
    graph.initializer.append(numpy_helper.from_array(np.array([0]), "zero"))
    nodes = [
        helper.make_node("Shape", ["attention_mask"], ["bias.all"], start=1, end=2),
        helper.make_node("Squeeze", ["bias.all"], ["bias.length"]),
        helper.make_node("Squeeze", ["zero"], ["bias.zero"]),
        helper.make_node("Constant", [], ["bias.one"], value_int=1),
        helper.make_node("Range", ["bias.zero", "bias.length", "bias.one"], ["bias.places"]),
        helper.make_node("Cast", ["bias.places"], ["bias.floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Pow", ["bias.floats", "power"], ["bias.powers"]),
        helper.make_node("Mul", ["bias.powers", "slope"], ["bias"]),
        helper.make_node("Add", [before, "bias"], ["biased"]),
    ]
    softmax.input[0] = "biased"
    for offset, node in enumerate(nodes):
        graph.node.insert(place + offset, node)


def add_a_curve(graph: onnx.GraphProto) -> None:
    """A bias by the place of a token that is not the same when all tokens of a text have others before them."""
    add_a_bias(graph, 2.0)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_cache_is_shared(folders: dict[str, Path], name: str) -> None:
    decoder = Decoder(read(folders[name] / "model.onnx"), threads=1)
    assert decoder.form == "shared cache" and decoder.batched
    assert decoder.rewriting == Rewriting()  # everything that could be
    inputs = {info.name for info in decoder.run._session.get_inputs()}
    assert "attention_mask" not in inputs and "ox.seqlens_k" in inputs
    assert SCORED in inputs  # scores of some tokens alone


@pytest.mark.parametrize("change", [hide_the_pattern, add_a_bias, add_a_curve])
def test_other_graphs_are_run_as_they_are(
    folders: dict[str, Path], tmp_path: Path, client_of: Any, caplog: pytest.LogCaptureFixture, change: Any
) -> None:
    from ox.generation import OnnxDecoder

    folder = changed(folders["llama"], tmp_path / "other", change)
    with caplog.at_level(logging.WARNING, "ox.serve"):
        decoder = Decoder(read(folder / "model.onnx"), threads=1)
    assert decoder.form == "copied cache"
    assert decoder.batched == (change is not add_a_curve)  # padding before a text changes the places of its tokens
    reason = "is not extended by one Concat" if change is hide_the_pattern else "differ by"
    assert "the cache is copied with each token" in caplog.text and reason in caplog.text
    client, file = client_of(folder), OnnxDecoder(folder)
    answers = [client.send(prompt, 15, ignore_eos=True) for prompt in prompts(6)]
    for prompt, answer in zip(prompts(6), answers, strict=True):
        wanted = file.generate(np.array([prompt]), max_new_tokens=15, return_dict_in_generate=True).tokens[0]
        assert answer.wait().tokens == list(wanted)
    wanted = file.generate(np.array([[5, 6, 7]]), max_new_tokens=90, return_dict_in_generate=True).tokens[0]
    assert client.ask([5, 6, 7], 90, ignore_eos=True).tokens == list(wanted)
    assert client.engine.stats()["accepted_tokens"] > 0  # alone, it is guessed


def test_a_folder_of_onnxruntime_genai(folders: dict[str, Path], tmp_path: Path, client_of: Any, alone: Any) -> None:
    """Its graph has GroupQueryAttention, which counts in the mask, and its settings tell the rest."""
    graph = DecoderGraph(onnx.load(folders["llama"] / "model.onnx"))
    graph.share_cache()
    model = onnx.load_from_string(graph.serialized())
    counts = [
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("ReduceSum", ["attention_mask", "one"], ["count"], keepdims=0),
        helper.make_node("Sub", ["count", "one"], ["before"]),
        helper.make_node("Cast", ["before"], [LENGTHS], to=onnx.TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["all"], start=1, end=2),
        helper.make_node("Squeeze", ["all"], ["total"]),
        helper.make_node("Cast", ["total"], [TOTAL], to=onnx.TensorProto.INT32),
    ]
    for place, node in enumerate(counts):
        model.graph.node.insert(place, node)
    for name in (LENGTHS, TOTAL):
        model.graph.input.remove(next(each for each in model.graph.input if each.name == name))
    mask = helper.make_tensor_value_info("attention_mask", onnx.TensorProto.INT64, ["batch", "total"])
    model.graph.input.append(mask)
    for info in model.graph.input:
        if info.name.startswith("past_key_values."):
            info.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "model.onnx")
    settings = {"context_length": CONTEXT, "eos_token_id": END, "decoder": {"head_size": 16}}
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": settings}))
    client = client_of(tmp_path)
    assert (client.engine.context_length, client.engine.end_tokens) == (CONTEXT, (END,))
    assert isinstance(client.engine._run, SharedCacheRun)
    answers = [client.send(prompt) for prompt in prompts(6)]
    for prompt, answer in zip(prompts(6), answers, strict=True):
        assert answer.wait().tokens == alone("llama", prompt, 20)


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int4"])
def test_lower_precision_is_run_together(folders: dict[str, Path], tmp_path: Path, client_of: Any, scheme: str) -> None:
    """Its scores depend on what else is in a batch, as those of the file itself do: no more than these is allowed."""
    ox.export.quantize(folders["llama"] / "model.onnx", tmp_path / "model.onnx", scheme)
    decoder = Decoder(read(tmp_path / "model.onnx"), threads=1)
    assert decoder.form == "shared cache" and decoder.batched
    client = client_of(tmp_path)
    answers = [client.send(prompt, 15) for prompt in prompts(4)]
    assert all(len(answer.wait().tokens) == 15 for answer in answers)


def test_threads_are_measured(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ox.serve.generation.decoder.usable_threads", lambda: 2)
    times = iter([1.0, 2.0])
    monkeypatch.setattr("ox.serve.generation.decoder.DecoderCheck.step_s", lambda *_: next(times))
    assert Decoder(read(folders["llama"] / "model.onnx")).threads == 2
    times = iter([2.0, 1.0])
    assert Decoder(read(folders["llama"] / "model.onnx")).threads == 1


@pytest.mark.parametrize(
    "about, message",
    [
        ({"context_length": 256, "vocab_size": 50}, "expected a number of scores, and a context of two tokens or more"),
        ({"context_length": 1, "vocab_size": 100}, "a context of two tokens or more"),
        ({"context_length": "long", "vocab_size": 100}, "a context of two tokens or more"),
        ([], "the metadata ox.decoder of"),
    ],
)
def test_metadata_that_is_wrong(folders: dict[str, Path], tmp_path: Path, about: Any, message: str) -> None:
    model = onnx.load(folders["llama"] / "model.onnx")
    helper.set_model_props(model, {"ox.decoder": json.dumps(about)})
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(LoadError) as caught:
        Decoder(read(tmp_path / "model.onnx"), threads=1)
    assert message in caught.value.one_line()


def test_a_text_that_does_not_fit(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ox.serve.generation.decoder.available_memory", lambda: 1 << 19)
    with pytest.raises(LoadError, match="do not fit into the memory that there is"):
        Decoder(read(folders["llama"] / "model.onnx"), threads=1)


@pytest.mark.parametrize("activation", ["Tanh", "Mish", "HardSwish", "Softplus"])
def test_products_between_reshapes_are_joined(activation: str) -> None:
    """Whatever works element by element may lie between them."""
    node, weights = helper.make_node, np.ones((8, 8), np.float32)
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", "new", 8]) for name in ("x", "y")]
    nodes = [
        node("Reshape", ["x", "rows"], ["flat"]),
        node("Gemm", ["flat", "up"], ["wide"]),
        node(activation, ["wide"], ["active"]),
        node("Gemm", ["active", "down"], ["narrow"]),
        node("Shape", ["x"], ["sizes"]),
        node("Reshape", ["narrow", "sizes"], ["y"]),
    ]
    stored = [numpy_helper.from_array(weights, "up"), numpy_helper.from_array(weights + 1, "down")]
    stored.append(numpy_helper.from_array(np.array([-1, 8]), "rows"))
    file = helper.make_graph(nodes, "layers", ends[:1], ends[1:], stored)
    graph = DecoderGraph(helper.make_model(file, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))
    graph.join_products()
    assert [each.op_type for each in graph.nodes] == ["MatMul", activation, "MatMul"]
