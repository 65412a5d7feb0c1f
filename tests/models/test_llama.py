"""The LLaMA page beside a reference in NumPy, and checkpoints in Hugging Face's form."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows
from safetensors.numpy import save_file

import ox
from ox.errors import ArgumentError, LoadError
from ox_models import llama

Array = np.ndarray[Any, Any]
TINY = {
    "vocab_size": 19, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 12, "rms_norm_eps": 1e-5, "rope_theta": 100.0,
}  # fmt: skip
IDS = np.random.default_rng(1).integers(0, 19, (2, 9))


def tiny(**more: Any) -> llama.LlamaForCausalLM:
    """With weights in the range of trained ones."""
    model = llama.LlamaForCausalLM(llama.LlamaConfig(**{**TINY, **more}))
    values = np.random.default_rng(0)
    with ox.no_grad():
        for parameter in model.parameters():
            parameter += ox.from_numpy(0.3 * values.standard_normal(parameter.shape).astype(np.float32))
    return model.eval()


def plain(model: ox.nn.Module) -> dict[str, Array]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def turn(x: Array, place: int) -> Array:
    """A head at a place: pairs of its numbers as complex ones."""
    half = len(x) // 2
    angles = place * 100.0 ** (-np.arange(half) / half)
    spun = (x[:half] + 1j * x[half:]) * np.exp(1j * angles)
    return np.concatenate([spun.real, spun.imag])


def reference(w: dict[str, Array], ids: Array, head: Array) -> Array:
    """Token by token and head by head, on one text."""
    x = w["model.embed_tokens.weight"][ids]
    for i in range(2):
        w_of = {name: w[f"model.layers.{i}.{name}.weight"] for name in (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
            "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm")}  # fmt: skip
        normed = norm(x, w_of["input_layernorm"])
        query, key, value = (normed @ w_of[f"self_attn.{name}_proj"].T for name in "qkv")
        mixed = np.zeros_like(query)
        for h in range(4):
            mine, shared = slice(4 * h, 4 * h + 4), slice(4 * (h // 2), 4 * (h // 2) + 4)
            queries = np.stack([turn(q, t) for t, q in enumerate(query[:, mine])])
            keys = np.stack([turn(k, t) for t, k in enumerate(key[:, shared])])
            for t in range(len(ids)):
                scores = np.exp(keys[: t + 1] @ queries[t] / math.sqrt(4))
                mixed[t, mine] = (scores / scores.sum()) @ value[: t + 1, shared]
        x = x + mixed @ w_of["self_attn.o_proj"].T
        normed = norm(x, w_of["post_attention_layernorm"])
        x = x + (silu(normed @ w_of["mlp.gate_proj"].T) * (normed @ w_of["mlp.up_proj"].T)) @ w_of["mlp.down_proj"].T
    return norm(x, w["model.norm.weight"]) @ head.T


def logits(model: ox.nn.Module) -> Array:
    with ox.no_grad():
        return model(ox.tensor(IDS)).numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize("tied", [False, True])
def test_it_is_the_papers(tied: bool) -> None:
    model = tiny(tie_word_embeddings=tied)
    w = plain(model)
    head = w["model.embed_tokens.weight" if tied else "lm_head.weight"]
    for row, text in zip(logits(model), IDS, strict=True):
        np.testing.assert_allclose(row, reference(w, text, head), rtol=1e-4, atol=1e-4)
    assert sum(p.numel() for p in model.parameters()) == llama.weights(model.model.config)


def test_it_generates_and_trains() -> None:
    model = tiny()
    ids = IDS[:, :3]
    with ox.no_grad():
        for _ in range(9):
            ids = np.concatenate([ids, model(ox.tensor(ids)).numpy()[:, -1].argmax(-1)[:, None]], 1)
    np.testing.assert_array_equal(model.generate(IDS[:, :3], max_new_tokens=9).numpy(), ids)
    model(ox.tensor(IDS)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def write(folder: Path, state: dict[str, Array], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **TINY, **config}))
    save_file(state, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("newer", [False, True])
def test_checkpoints(tmp_path: Path, newer: bool) -> None:
    model = tiny()
    state = plain(model) | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
    config: dict[str, Any] = {"hidden_act": "silu", "attention_bias": False, "rope_scaling": None}
    if newer:
        config |= {"rope_theta": None, "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}}
    loaded = llama.from_pretrained(write(tmp_path / "all", state, **config))
    assert not loaded.training
    np.testing.assert_array_equal(logits(loaded), logits(model))


def test_a_head_that_is_the_table_of_tokens(tmp_path: Path) -> None:
    model = tiny(tie_word_embeddings=True)
    state = plain(model)
    del state["lm_head.weight"]
    loaded = llama.from_pretrained(write(tmp_path / "tied", state, tie_word_embeddings=True))
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    np.testing.assert_array_equal(logits(loaded), logits(model))


def test_another_head_than_the_table_of_tokens(tmp_path: Path) -> None:
    """It would take the place of the table without a word."""
    state = plain(tiny(tie_word_embeddings=True)) | {"lm_head.weight": np.ones((19, 16), np.float32)}
    with pytest.raises(LoadError, match="the file has another lm_head"):
        llama.from_pretrained(write(tmp_path / "tied", state, tie_word_embeddings=True))


LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192
}  # fmt: skip

RATES = [1.0, 0.1939228, 0.03760603, 0.007292665, 5.248460e-4, 3.428102e-5, 6.647870e-6, 1.289173e-6]


@pytest.mark.parametrize("newer", [False, True])
def test_positions_of_llama_3(tmp_path: Path, newer: bool) -> None:
    """Its rates beside those of transformers 5.24 for heads of 16 numbers and a base of 500,000."""
    scaling = {"rope_type": "llama3", **LLAMA3}
    config: dict[str, Any] = {"rope_theta": 500000.0, "rope_scaling": scaling, "head_dim": 16}
    if newer:
        config = {"rope_parameters": {**scaling, "rope_theta": 500000.0}, "rope_theta": None, "head_dim": 16}
    loaded = llama.from_pretrained(write(tmp_path / "x", plain(tiny(head_dim=16)), **config))
    positions = ox.tensor([[1]])
    cosine, sine = llama.rotary(positions, loaded.model.config)
    found = np.arctan2(sine.numpy(), cosine.numpy()).reshape(-1)[:8]
    np.testing.assert_allclose(found, RATES, rtol=1e-4)


def test_a_scaling_that_is_none() -> None:
    with pytest.raises(ArgumentError, match="a scaling of rotary positions is none"):
        llama.RopeScaling(**{**LLAMA3, "low_freq_factor": 4.0})


@rows(
    ("config", "what"),
    [
        ({"model_type": "gpt2"}, "model_type"),
        ({"rope_scaling": {"type": "linear"}}, "rope_type='linear'"),
        ({"rope_scaling": "linear"}, "rope_scaling in config.json is no table"),
        ({"rope_parameters": {"type": "dynamic", "factor": 2.0}}, "rope_type='dynamic'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "too little of rope_type='llama3'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type"),
        ({"attention_bias": True}, "attention_bias"),
        ({"sliding_window": 4}, "sliding_window"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_hidden_layers": 50}, "larger model"),
        ({"vocab_size": "many"}, "vocab_size"),
    ],
    ids=str,
)
def test_settings_that_are_not_implemented(tmp_path: Path, config: dict[str, Any], what: str) -> None:
    with pytest.raises(LoadError, match=what):
        llama.from_pretrained(write(tmp_path / "x", plain(tiny()), **config))


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"hidden_size": 18}, "num_attention_heads must divide hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide"),
        ({"head_dim": 3}, "head_dim is even"),
    ],
)
def test_sizes_that_do_not_fit(config: dict[str, Any], what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        llama.LlamaConfig(**{**TINY, **config})


def test_a_text_that_is_too_long() -> None:
    with pytest.raises(ArgumentError, match="longer than the model's positions"):
        tiny()(ox.zeros(1, 13, dtype=ox.int64))
