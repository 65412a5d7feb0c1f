"""A small decoder with random weights, a tokenizer of single bytes, and a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import ox
from ox.export import decoder_file, save_decoder
from ox.generation import Generates
from ox_models.llama import LlamaConfig, LlamaForCausalLM

SPECIAL = ["<s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if tools %}{{ '<tool_call></tool_call>' ~ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


def save_briefly(model: Generates, folder: Path, **beside: Any) -> None:
    """`save_decoder` with a proof of few tokens, for tests of what reads the folder. The whole proof takes three times
    as long as the rest, and is a subject of tests/export/test_decoder_file.py."""
    with patch.object(decoder_file, "PROOF_TOKENS", 4):
        save_decoder(model, folder, **beside)


def write_tokenizer(path: Path) -> int:
    """A byte-level tokenizer of single bytes; returns the number of its tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["the cat sat on the mat"], trainer)
    tokenizer.save(str(path))
    return int(tokenizer.get_vocab_size())


def write_decoder(
    folder: Path, template: str | None = TEMPLATE, context_length: int = 256, **defaults: float | None
) -> Path:
    """The folder `tiny` of a LLaMA, by default of 256 tokens of context."""
    size = write_tokenizer(folder / "tokenizer.json")
    ox.manual_seed(0)
    config = LlamaConfig(
        size, 16, 24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=context_length,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    values = np.random.default_rng(1)
    with ox.no_grad():
        for parameter in model.parameters():
            parameter += ox.from_numpy(0.3 * values.standard_normal(parameter.shape).astype(np.float32))
    save_briefly(model, folder / "tiny", tokenizer=folder / "tokenizer.json", chat_template=template,
                 generation={"eos_token_id": 2, **defaults})  # fmt: skip
    return folder / "tiny"
