"""Folders of onnxruntime-genai: a LLaMA on GroupQueryAttention, as its model builder writes one, beside the same
weights in ox_models.llama."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ox
from ox.errors import LoadError
from ox.generation import OnnxDecoder
from ox_models.llama import LlamaConfig, LlamaForCausalLM

HEADS, SHARED, SIZE, WIDTH, LAYERS, TOKENS, CONTEXT = 4, 2, 16, 64, 2, 97, 64
FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    ox.manual_seed(3)
    config = LlamaConfig(TOKENS, WIDTH, 80, LAYERS, HEADS, SHARED, CONTEXT)
    llama = LlamaForCausalLM(config).eval()
    with ox.no_grad():
        for parameter in llama.parameters():
            parameter += 0.1 * ox.randn(*parameter.shape)
    return llama


def config(**decoder: Any) -> dict[str, Any]:
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    inputs |= {f"past_{kind}_names": f"past_key_values.%d.{kind}" for kind in ("key", "value")}
    outputs = {"logits": "logits"} | {f"present_{kind}_names": f"present.%d.{kind}" for kind in ("key", "value")}
    return {
        "model": {
            "type": "llama", "context_length": CONTEXT, "eos_token_id": 0, "pad_token_id": 0, "vocab_size": TOKENS,
            "decoder": {
                "filename": "decoder.onnx", "head_size": SIZE, "num_key_value_heads": SHARED,
                "num_hidden_layers": LAYERS, "inputs": inputs, "outputs": outputs, **decoder,
            },
        },
        "search": {"do_sample": False, "top_k": 50, "repetition_penalty": 1.1, "past_present_share_buffer": True},
    }  # fmt: skip


def graph(model: LlamaForCausalLM, lengths_as_inputs: bool) -> onnx.ModelProto:
    """The model in the builder's form. `seqlens_k` and the total length follow from the mask, or are inputs."""
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    rates = 10000.0 ** (-2 * np.arange(SIZE // 2) / SIZE)
    angles = np.arange(CONTEXT)[:, None] * rates
    constants: dict[str, Any] = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    constants |= {"one": np.array([1]), "table": weights["model.embed_tokens.weight"]}
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["x"])]
    if not lengths_as_inputs:
        nodes += [
            helper.make_node("ReduceSum", ["attention_mask", "one"], ["sums"], keepdims=0),
            helper.make_node("Sub", ["sums", "one"], ["last"]),
            helper.make_node("Cast", ["last"], ["seqlens_k"], to=INT32),
            helper.make_node("Shape", ["attention_mask"], ["size"], start=1),
            helper.make_node("Squeeze", ["size"], ["length"]),
            helper.make_node("Cast", ["length"], ["total_seq_len"], to=INT32),
        ]

    def product(x: str, name: str, to: str) -> None:
        constants[name] = np.ascontiguousarray(weights[name].T)
        nodes.append(helper.make_node("MatMul", [x, name], [to]))

    def norm(x: str, name: str, to: str) -> None:
        constants[name] = weights[name]
        nodes.append(helper.make_node("RMSNormalization", [x, name], [to], epsilon=1e-6))

    x = "x"
    for i in range(LAYERS):
        own, at = f"model.layers.{i}", f"l{i}."
        norm(x, f"{own}.input_layernorm.weight", f"{at}n")
        for each in "qkv":
            product(f"{at}n", f"{own}.self_attn.{each}_proj.weight", at + each)
        pasts = [f"past_key_values.{i}.{kind}" for kind in ("key", "value")]
        presents = [f"present.{i}.{kind}" for kind in ("key", "value")]
        nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [*(at + each for each in "qkv"), *pasts, "seqlens_k", "total_seq_len", "cos", "sin"],
                [f"{at}a", *presents], domain="com.microsoft", num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1,
            )
        )  # fmt: skip
        product(f"{at}a", f"{own}.self_attn.o_proj.weight", f"{at}o")
        nodes.append(helper.make_node("Add", [x, f"{at}o"], [f"{at}r"]))
        norm(f"{at}r", f"{own}.post_attention_layernorm.weight", f"{at}m")
        product(f"{at}m", f"{own}.mlp.gate_proj.weight", f"{at}g")
        product(f"{at}m", f"{own}.mlp.up_proj.weight", f"{at}u")
        nodes.append(helper.make_node("Sigmoid", [f"{at}g"], [f"{at}s"]))
        nodes.append(helper.make_node("Mul", [f"{at}g", f"{at}s"], [f"{at}h"]))
        nodes.append(helper.make_node("Mul", [f"{at}h", f"{at}u"], [f"{at}i"]))
        product(f"{at}i", f"{own}.mlp.down_proj.weight", f"{at}d")
        nodes.append(helper.make_node("Add", [f"{at}r", f"{at}d"], [f"{at}x"]))
        x = f"{at}x"
    norm(x, "model.norm.weight", "normed")
    product("normed", "lm_head.weight", "logits")
    info = helper.make_tensor_value_info
    cache = [f"{i}.{kind}" for i in range(LAYERS) for kind in ("key", "value")]
    inputs = [info("input_ids", INT64, ["batch", "new"])]
    if lengths_as_inputs:
        inputs += [info("seqlens_k", INT32, ["batch"]), info("total_seq_len", INT32, [])]
    else:
        inputs += [info("attention_mask", INT64, ["batch", "all"])]
    inputs += [info(f"past_key_values.{each}", FLOAT, ["batch", SHARED, "past", "dim"]) for each in cache]
    outputs = [info("logits", FLOAT, ["batch", "new", TOKENS])]
    outputs += [info(f"present.{each}", FLOAT, ["batch", SHARED, "all", "dim"]) for each in cache]
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    versions = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_graph(nodes, "decoder", inputs, outputs, stored)
    return helper.make_model(made, opset_imports=versions, ir_version=10)


@pytest.fixture(scope="module", params=[False, True], ids=["mask", "lengths"])
def folder(request: Any, model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("genai")
    onnx.save(graph(model, request.param), path / "decoder.onnx")
    table = config()
    if request.param:
        del table["model"]["decoder"]["inputs"]["attention_mask"]
        table["model"]["decoder"]["inputs"]["total_sequence_length"] = "total_seq_len"
    (path / "genai_config.json").write_text(json.dumps(table))
    return path


PROMPTS = np.array([[0, 0, 9, 8], [5, 6, 7, 8], [0, 0, 0, 3]])
MASK = np.array([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]])


def test_its_texts_are_the_models(model: LlamaForCausalLM, folder: Path) -> None:
    """Also of prompts of several lengths, which such a file cannot take with padding before them."""
    decoder = OnnxDecoder(folder)
    wanted, got = (
        each.generate(PROMPTS, MASK, max_new_tokens=40, return_dict_in_generate=True).tokens
        for each in (model, decoder)
    )
    assert got == wanted
    assert len({tuple(text) for text in got}) == 3


def test_texts_that_end_leave_and_beams_move(model: LlamaForCausalLM, folder: Path) -> None:
    decoder = OnnxDecoder(folder)
    ends = model.generate(PROMPTS, MASK, max_new_tokens=6, return_dict_in_generate=True).tokens[1][2]
    for more in ({"eos_token_id": ends}, {"num_beams": 3, "num_return_sequences": 2}):
        wanted, got = (each.generate(PROMPTS, MASK, max_new_tokens=12, **more).numpy() for each in (model, decoder))
        assert np.array_equal(got, wanted)


def test_what_the_configuration_says(folder: Path) -> None:
    decoder = OnnxDecoder(folder)
    assert decoder.context_length == CONTEXT
    assert decoder.defaults == {"do_sample": False, "repetition_penalty": 1.1, "eos_token_id": 0, "pad_token_id": 0}
    assert decoder.generate(PROMPTS[1:2], max_new_tokens=3, **decoder.defaults).shape[0] == 1


DAMAGED: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "cannot be read"),
    "no model": ({"search": {}}, "cannot be read"),
    "an encoder beside it": (
        {**config(), "model": {**config()["model"], "encoder": {}}},
        "not of a decoder in one file",
    ),
    "one tensor for keys and values": (config(inputs={"past_names": "past_%d"}), "no keys and values of each layer"),
    "another name": (
        config(inputs={**config()["model"]["decoder"]["inputs"], "past_key_names": "p%d"}),
        "is no decoder",
    ),
    "more layers": (config(num_hidden_layers=3), "is no decoder"),
    "another file": (config(filename="model.onnx"), "there is no file"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_configurations(folder: Path, tmp_path: Path, name: str) -> None:
    content, message = DAMAGED[name]
    (tmp_path / "decoder.onnx").symlink_to(folder / "decoder.onnx")
    (tmp_path / "genai_config.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(LoadError, match=message):
        OnnxDecoder(tmp_path)
