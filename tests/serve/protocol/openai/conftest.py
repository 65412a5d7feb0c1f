"""A small decoder with a tokenizer and a chat template, served; and the client of OpenAI's package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox.export import save_decoder
from ox.serve import ModelConfig, RequestLimits, Server
from ox_models.llama import LlamaConfig, LlamaForCausalLM

tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("jinja2", reason="the extra text is not installed")

SPECIAL = ["<s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if tools %}{{ '<tool_call></tool_call>' ~ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


def write_tokenizer(path: Path) -> int:
    """A byte-level tokenizer of single bytes; returns the number of its tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["the cat sat on the mat"], trainer)
    tokenizer.save(str(path))
    return int(tokenizer.get_vocab_size())


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a LLaMA with random weights, which answers with letters."""
    folder = tmp_path_factory.mktemp("decoders")
    size = write_tokenizer(folder / "tokenizer.json")
    ox.manual_seed(0)
    config = LlamaConfig(
        size, 16, 24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256
    )
    model = LlamaForCausalLM(config).eval()
    values = np.random.default_rng(1)
    with ox.no_grad():
        for parameter in model.parameters():
            parameter += ox.from_numpy(0.3 * values.standard_normal(parameter.shape).astype(np.float32))
    save_decoder(model, folder / "tiny", tokenizer=folder / "tokenizer.json", chat_template=TEMPLATE,
                 generation={"eos_token_id": 2})  # fmt: skip
    return folder / "tiny"


@pytest.fixture(scope="session")
def server(decoder: Path) -> Iterator[Server]:
    """Serves the decoder as `tiny`."""
    with Server([decoder], options=ModelConfig(threads=1), limits=RequestLimits(json=200_000)) as running:
        yield running


@pytest.fixture
def openai_client(server: Server) -> Iterator[Any]:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def tokens(decoder: Path) -> Any:
    """The tokens of a text."""
    return lambda text: tokenizers.Tokenizer.from_file(str(decoder / "tokenizer.json")).encode(text).ids
