"""Files in the forms that Optimum writes: with two branches, with the details of scaled_dot_product_attention, with
sizes that the file leaves open, and with windows."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from generation_client import CONTEXT, VOCABULARY, prompts
from onnx import TensorProto, helper, numpy_helper

from ox.errors import LoadError
from ox.generation import OnnxDecoder
from ox.serve import Server
from ox.serve.generation.decoder import Decoder
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.decoder_run import AppendedCacheRun, SharedCacheRun
from ox.serve.generation.engine import GenerationEngine
from ox.serve.runtime.source import read

LONG = 90  # tokens of a prompt


def save(folder: Path, model: onnx.ModelProto, name: str = "model.onnx") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / name)
    return folder


def branch(graph: onnx.GraphProto, suffix: str, singly: bool) -> onnx.GraphProto:
    """The nodes of a decoder as a branch; `singly`: it takes one token of each text."""
    own = {name for node in graph.node for name in node.output}
    nodes = []
    if singly:
        nodes.append(helper.make_node("Reshape", ["input_ids", "one_token"], [f"ids{suffix}"]))
    for node in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name += suffix
        copy.input[:] = [name + suffix if name in own else name for name in node.input]
        if singly:
            copy.input[:] = [f"ids{suffix}" if name == "input_ids" else name for name in copy.input]
        copy.output[:] = [name + suffix for name in node.output]
        nodes.append(copy)
    outputs = [helper.make_empty_tensor_value_info(info.name + suffix) for info in graph.output]
    return helper.make_graph(nodes, f"branch{suffix}", [], outputs)


def with_branches(path: Path, singly: bool = False) -> onnx.ModelProto:
    """decoder_model_merged.onnx: a branch for prompts, one for what follows them."""
    model = onnx.load(path)
    graph = model.graph
    choice = helper.make_node(
        "If", ["use_cache_branch"], [info.name for info in graph.output],
        then_branch=branch(graph, "_then", singly), else_branch=branch(graph, "_else", False),
    )  # fmt: skip
    graph.initializer.append(numpy_helper.from_array(np.array([-1, 1]), "one_token"))
    del graph.node[:], graph.value_info[:]
    graph.node.append(choice)
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    return model


def assert_same_texts(client: Any, alone: Any, name: str) -> None:
    """Texts that run together are those of the file alone."""
    cases = prompts(6)
    answers = [client.send(prompt, ignore_eos=True) for prompt in cases]
    for prompt, answer in zip(cases, answers, strict=True):
        text = alone(name, prompt, 20)
        assert answer.wait().tokens[: len(text)] == text


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_two_branches(folders: dict[str, Path], tmp_path: Path, alone: Any, client_of: Any, name: str) -> None:
    save(tmp_path, with_branches(folders[name] / "model.onnx"))
    client = client_of(tmp_path, prefill_tokens=16)
    assert isinstance(client.engine._run, SharedCacheRun)
    assert_same_texts(client, alone, name)


def test_a_branch_for_single_tokens(
    folders: dict[str, Path], tmp_path: Path, alone: Any, client_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Older files take one token at a time after the first ones."""
    save(tmp_path, with_branches(folders["gpt2"] / "model.onnx", singly=True))
    with caplog.at_level(logging.WARNING, "ox.serve"):
        client = client_of(tmp_path, prefill_tokens=7)
    run = client.engine._run
    assert isinstance(run, AppendedCacheRun) and run.singly
    assert "prompts in parts are read token by token" in caplog.text and "not run together" not in caplog.text
    cases = prompts(6)
    answers = [client.send(prompt, 10) for prompt in cases]
    for prompt, answer in zip(cases, answers, strict=True):
        assert answer.wait().tokens == alone("gpt2", prompt, 10)
    assert client.ask([5, 6], 60).tokens == alone("gpt2", [5, 6], 60)
    assert client.engine.stats()["drafted_tokens"] == 0  # each guess would take a run of its own


def test_two_files_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    for name in ("decoder_model.onnx", "decoder_with_past_model.onnx", "generation_config.json"):
        shutil.copy(folders["gpt2"] / "model.onnx", tmp_path / name)
    with pytest.raises(LoadError, match="has a decoder in two files"):
        GenerationEngine.open(tmp_path, threads=1)


def as_sdpa(graph: onnx.GraphProto) -> None:
    """What torch.onnx makes of scaled_dot_product_attention: the root of the scale on both sides, computed from the
    size of a head, and 0 where a softmax has seen nothing."""
    for softmax in [node for node in graph.node if node.op_type == "Softmax"]:
        at = list(graph.node).index(softmax)
        whole = softmax.output[0]
        softmax.output[0] = f"{whole}.plain"
        guard = [
            helper.make_node("IsNaN", [f"{whole}.plain"], [f"{whole}.nan"]),
            helper.make_node("Where", [f"{whole}.nan", "sdpa.zero", f"{whole}.plain"], [whole]),
        ]
        for offset, node in enumerate(guard):
            graph.node.insert(at + 1 + offset, node)
    graph.initializer.append(numpy_helper.from_array(np.float32(0), "sdpa.zero"))
    graph.initializer.append(numpy_helper.from_array(np.float32(16), "sdpa.sixteen"))
    for name, value in (("first", -1), ("end", (1 << 63) - 1)):
        graph.initializer.append(numpy_helper.from_array(np.array([value]), f"sdpa.{name}"))
    for product in [node for node in graph.node if node.op_type == "MatMul" and len(by_past(graph, node)) == 1]:
        at = list(graph.node).index(product)
        query, key = product.input
        nodes = [
            helper.make_node("Shape", [query], [f"{query}.sizes"]),
            helper.make_node("Slice", [f"{query}.sizes", "sdpa.first", "sdpa.end"], [f"{query}.head"]),
            helper.make_node("Cast", [f"{query}.head"], [f"{query}.float"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["sdpa.sixteen", f"{query}.float"], [f"{query}.share"]),
            helper.make_node("Sqrt", [f"{query}.share"], [f"{query}.scale"]),
            helper.make_node("Mul", [query, f"{query}.scale"], [f"{query}.scaled"]),
            helper.make_node("Mul", [key, f"{query}.scale"], [f"{key}.scaled"]),
        ]
        for offset, node in enumerate(nodes):
            graph.node.insert(at + offset, node)
        product.input[:] = [f"{query}.scaled", f"{key}.scaled"]


def by_past(graph: onnx.GraphProto, product: onnx.NodeProto) -> list[str]:
    """The inputs of keys that the second factor of a product comes from."""
    makers = {name: node for node in graph.node for name in node.output}
    name = product.input[1]
    while name in makers and makers[name].op_type != "MatMul":
        name = makers[name].input[0]
    return [name] if name.endswith(".key") else []


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_scaled_dot_product_attention(folders: dict[str, Path], tmp_path: Path, client_of: Any, name: str) -> None:
    """gpt2's heads have 8 numbers, so that its scores are doubled: the scale counts."""
    model = onnx.load(folders[name] / "model.onnx")
    as_sdpa(model.graph)
    assert sum(node.op_type == "Slice" and ".head" in node.output[0] for node in model.graph.node) == 2
    save(tmp_path, model)
    client, file = client_of(tmp_path), OnnxDecoder(tmp_path)
    assert isinstance(client.engine._run, SharedCacheRun)
    cases = prompts(4)
    answers = [client.send(prompt, 15, ignore_eos=True) for prompt in cases]
    for prompt, answer in zip(cases, answers, strict=True):
        wanted = file.generate(np.array([prompt]), max_new_tokens=15, return_dict_in_generate=True).tokens[0]
        assert answer.wait().tokens == list(wanted)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_positions_that_are_counted_in_the_cache(
    folders: dict[str, Path], tmp_path: Path, alone: Any, client_of: Any, name: str
) -> None:
    """Files without position_ids: all rows of a batch would have the positions of the longest."""
    model = onnx.load(folders[name] / "model.onnx")
    graph = model.graph
    graph.input.remove(next(info for info in graph.input if info.name == "position_ids"))
    graph.initializer.append(numpy_helper.from_array(np.array(1), "places.one"))
    graph.initializer.append(numpy_helper.from_array(np.array([0]), "places.rows"))
    nodes = [
        helper.make_node("Shape", ["past_key_values.0.key"], ["places.past"], start=2, end=3),
        helper.make_node("Squeeze", ["places.past"], ["places.before"]),
        helper.make_node("Shape", ["input_ids"], ["places.ids"], start=1, end=2),
        helper.make_node("Squeeze", ["places.ids"], ["places.new"]),
        helper.make_node("Add", ["places.before", "places.new"], ["places.all"]),
        helper.make_node("Range", ["places.before", "places.all", "places.one"], ["places.range"]),
        helper.make_node("Unsqueeze", ["places.range", "places.rows"], ["position_ids"]),
    ]
    for place, node in enumerate(nodes):
        graph.node.insert(place, node)
    save(tmp_path, model)
    client = client_of(tmp_path, prefill_tokens=16)
    assert isinstance(client.engine._run, SharedCacheRun)
    assert_same_texts(client, alone, name)


def test_sizes_that_only_the_settings_tell(folders: dict[str, Path], tmp_path: Path) -> None:
    model = onnx.load(folders["llama"] / "model.onnx")
    for info in (*model.graph.input, *model.graph.output):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.dim_param = f"{info.name}_{axis}"
    del model.metadata_props[:], model.graph.value_info[:]
    save(tmp_path, model)
    with pytest.raises(LoadError, match="is no cache that can be given"):
        Decoder(read(tmp_path / "model.onnx"), threads=1)
    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64, "vocab_size": VOCABULARY}
    (tmp_path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    decoder = Decoder(read(tmp_path / "model.onnx"), threads=1, folder=DecoderFolder.read(tmp_path / "model.onnx"))
    assert (decoder.vocab_size, decoder.context_length) == (VOCABULARY, CONTEXT)
    assert {(shape.heads, shape.size) for shape in decoder.shapes.values()} == {(2, 16)}


def with_window(graph: onnx.GraphProto, size: int = 20) -> None:
    """Tokens see so many before them, counted by the columns of the mask."""
    for softmax in [node for node in graph.node if node.op_type == "Softmax"]:
        at, scores = list(graph.node).index(softmax), softmax.input[0]
        nodes = [
            helper.make_node("Shape", [scores], [f"{scores}.sizes"], start=2),
            helper.make_node("ConstantOfShape", [f"{scores}.sizes"], [f"{scores}.none"]),
            helper.make_node("Shape", [scores], [f"{scores}.all"], start=3),
            helper.make_node("Shape", [scores], [f"{scores}.new"], start=2, end=3),
            helper.make_node("Sub", [f"{scores}.all", f"{scores}.new"], [f"{scores}.before"]),
            helper.make_node("Sub", [f"{scores}.before", "window.size"], [f"{scores}.last"]),
            helper.make_node("Add", [f"{scores}.none", "window.out"], [f"{scores}.out"]),
            helper.make_node("Trilu", [f"{scores}.out", f"{scores}.diagonal"], [f"{scores}.bias"], upper=0),
            helper.make_node("Add", [scores, f"{scores}.bias"], [f"{scores}.seen"]),
        ]
        nodes.insert(6, helper.make_node("Squeeze", [f"{scores}.last"], [f"{scores}.diagonal"]))
        for offset, node in enumerate(nodes):
            graph.node.insert(at + offset, node)
        softmax.input[0] = f"{scores}.seen"
    graph.initializer.append(numpy_helper.from_array(np.array([size]), "window.size"))
    graph.initializer.append(numpy_helper.from_array(np.float32(-1e9), "window.out"))


def test_windows_hold_for_texts_of_other_lengths(folders: dict[str, Path], tmp_path: Path, client_of: Any) -> None:
    """A short text beside a long one sees as far as alone."""
    model = onnx.load(folders["llama"] / "model.onnx")
    with_window(model.graph)
    save(tmp_path, model)
    client, file = client_of(tmp_path), OnnxDecoder(tmp_path)
    assert isinstance(client.engine._run, AppendedCacheRun)
    assert Decoder(read(tmp_path / "model.onnx"), threads=1).batched
    cases = [*prompts(4), (prompts(1, seed=3)[0] * LONG)[:LONG]]
    answers = [client.send(prompt, 30, ignore_eos=True) for prompt in cases]
    for prompt, answer in zip(cases, answers, strict=True):
        wanted = file.generate(np.array([prompt]), max_new_tokens=30, return_dict_in_generate=True).tokens[0]
        assert answer.wait().tokens == list(wanted)


def test_a_file_that_cannot_continue_a_text(folders: dict[str, Path], tmp_path: Path) -> None:
    """Its past is another than what it gave out."""
    model = onnx.load(folders["gpt2"] / "model.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.float32(-1), "minus"))
    for node in list(model.graph.node):
        if node.op_type == "Concat" and node.input[0].startswith("past_key_values."):
            negated = f"{node.input[0]}.negated"
            model.graph.node.insert(0, helper.make_node("Mul", [node.input[0], "minus"], [negated]))
            node.input[0] = negated
    save(tmp_path, model)
    with pytest.raises(LoadError, match="cannot continue a text from its keys and values"):
        GenerationEngine.open(tmp_path, threads=1)


def test_the_folder_above_has_the_settings(folders: dict[str, Path], tmp_path: Path) -> None:
    """huggingface.co/onnx-community: files in a folder "onnx", tokenizer and settings above them."""
    shutil.copytree(folders["llama"], tmp_path, dirs_exist_ok=True)
    for name in ("onnx/model.onnx", "onnx/model_q4.onnx"):
        save(tmp_path, onnx.load(folders["llama"] / "model.onnx"), name)
    (tmp_path / "model.onnx").unlink()
    for path in (tmp_path, tmp_path / "onnx" / "model_q4.onnx"):
        engine = GenerationEngine.open(path, threads=1)
        assert engine.tokenizer is not None and engine.end_tokens == (99,)
        engine.close(finish=False)


def test_a_configuration_chooses_the_file(folders: dict[str, Path], tmp_path: Path) -> None:
    writer = Path(shutil.copytree(folders["llama"], tmp_path / "writer"))
    (writer / "onnx").mkdir()
    (writer / "model.onnx").rename(writer / "onnx" / "model_q4.onnx")
    with pytest.raises(LoadError, match=r"has no file model\.onnx"), Server([tmp_path], port=0, watch=False):
        pass
    (writer / "config.pbtxt").write_text('default_model_filename: "onnx/model_q4.onnx"')
    with Server([tmp_path], port=0, watch=False) as server:
        assert "writer 1 · generates texts on cpu" in "\n".join(server.greeting())


def test_a_file_with_the_last_scores_only(folders: dict[str, Path], tmp_path: Path) -> None:
    """Some exports leave out the scores that generation alone does not need."""
    model = onnx.load(folders["gpt2"] / "model.onnx")
    (head,) = [node for node in model.graph.node if "logits" in node.output]
    head.output[0] = "all"
    for name, value in (("start", -1), ("end", 1 << 60), ("axis", 1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([value]), f"last.{name}"))
    model.graph.node.append(helper.make_node("Slice", ["all", "last.start", "last.end", "last.axis"], ["logits"]))
    next(info for info in model.graph.output if info.name == "logits").type.tensor_type.ClearField("shape")
    save(tmp_path, model)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY}))
    with pytest.raises(LoadError, match="the file gives the scores after some tokens only"):
        GenerationEngine.open(tmp_path, threads=1)
