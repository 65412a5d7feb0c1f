"""A small decoder with a tokenizer and a chat template, served; and the client of OpenAI's package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ox.serve import ModelConfig, RequestLimits, Server

tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("jinja2", reason="the extra text is not installed")


@pytest.fixture(scope="session")
def decoder(shared_folder: Callable[..., Path]) -> Path:
    from tiny_decoder import write_decoder

    return shared_folder("tiny_decoder", write_decoder) / "tiny"


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
