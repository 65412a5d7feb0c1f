"""What generation_config.json says of how texts are chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ox.errors import LoadError
from ox.generation.generation_config import read_generation_config

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"eos_token_id": [1, 2], "bos_token_id": 5, "transformers_version": "5"}, {"eos_token_id": [1, 2]}),
    ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, {"do_sample": True, "temperature": 0.6, "top_p": 0.9}),
    ({"temperature": 0.6, "repetition_penalty": 1.1, "pad_token_id": None}, {"repetition_penalty": 1.1}),
]


@pytest.mark.parametrize(("content", "wanted"), CASES)
def test_what_generate_takes_is_kept(tmp_path: Path, content: dict[str, Any], wanted: dict[str, Any]) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(content))
    assert read_generation_config(path) == wanted


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_damaged_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text(text)
    with pytest.raises(LoadError, match="cannot be read"):
        read_generation_config(path)
