"""Tiny decoders in files, and engines that run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoder_models import models
from generation_client import CONTEXT, END, Client, loaded, write_tokenizer
from tiny_decoder import save_briefly

from ox.clock import SYSTEM, Clock
from ox.generation import OnnxDecoder
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.decoder import Decoder
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.engine import GenerationEngine
from ox.serve.runtime.source import read


def write_folders(root: Path) -> None:
    llama, gpt2 = models()
    tokenizer = write_tokenizer(root / "tokenizer.json")
    save_briefly(llama, root / "llama", tokenizer=tokenizer, generation={"eos_token_id": END})
    save_briefly(gpt2, root / "gpt2")


@pytest.fixture(scope="session")
def folders(shared_folder: Callable[..., Path]) -> dict[str, Path]:
    """By name: "llama", with heads that queries share, and "gpt2". Only the first has a tokenizer and an end token."""
    root = shared_folder("decoders", write_folders)
    return {name: root / name for name in ("llama", "gpt2")}


@pytest.fixture(scope="session")
def alone(folders: dict[str, Path]) -> Callable[..., list[int]]:
    """The greedy text of a prompt by the file itself."""
    decoders = {name: OnnxDecoder(folder) for name, folder in folders.items()}

    def text(name: str, prompt: list[int], count: int) -> list[int]:
        end = END if name == "llama" else None
        answer = decoders[name].generate(
            np.array([prompt]), max_new_tokens=count, eos_token_id=end, return_dict_in_generate=True
        )
        return list(map(int, answer.tokens[0]))

    return text


@pytest.fixture
def client_of(folders: dict[str, Path]) -> Iterator[Callable[..., Client]]:
    """A client of an engine of its own, of a decoder by name or folder; so many texts of context length fit into its
    cache."""
    engines = []

    def make(
        name: str | Path = "llama", texts: float = 32, queue: int = 1024, clock: Clock = SYSTEM, **options: Any
    ) -> Client:
        file = folders.get(str(name), Path(name)) / "model.onnx"
        folder = DecoderFolder.read(file)
        decoder = (loaded if name in folders else Decoder)(read(file), 1, None, folder)
        size = sum(shape.nbytes for shape in decoder.shapes.values())
        budget = int(texts * CONTEXT * size)
        settings = GenerationOptions(**options)
        engine = GenerationEngine(decoder, folder, settings, budget, max_queue=queue, clock=clock)
        engines.append(engine)
        return Client(engine)

    yield make
    for engine in engines:
        engine.close(finish=False)
