"""ox.toml: what it may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.errors import LoadError
from ox.serve.config.model_config import ModelConfig
from ox.serve.repository.policy import Policy
from ox.serve.repository.setup import Running, Setup
from ox.serve.repository.toml import apply_table, tables


def read(folder: Path, text: str) -> Setup:
    path = folder / "ox.toml"
    path.write_text(text)
    return apply_table(Setup(Running(ModelConfig(max_rows=4))), tables(path)["m"], path, "m")


def test_everything(tmp_path: Path) -> None:
    text = """
    [models.m]
    aliases = ["a", "b"]
    labels = {prod = 3, "next.one" = 4}
    versions = 2
    memory_mib = 100
    threads = 2
    max_queue = 10
    """
    setup = read(tmp_path, text)
    assert setup.aliases == ("a", "b") and setup.labels == {"prod": 3, "next.one": 4} and setup.policy == Policy(2)
    assert setup.running == Running(ModelConfig(max_rows=4, threads=2, max_queue=10), memory_mib=100)
    on_gpu = read(tmp_path, '[models.m]\ndevice = "cuda"\ncuda = {gpu_mem_limit = "4GiB"}').running.options
    assert on_gpu.device == "cuda" and on_gpu.cuda == {"gpu_mem_limit": "4GiB"}
    assert setup.choose({1, 2, 3, 8, 9}) == {3, 8, 9}  # what has a label is served, too
    assert read(tmp_path, '[models.m]\nversions = "all"').policy == Policy(None)
    assert read(tmp_path, "[models.m]\nversions = [1, 3]").policy == Policy(None, frozenset({1, 3}))


WRONG: list[tuple[str, str]] = [
    ("aliases = 3", "aliases"),
    ('aliases = [""]', "aliases"),
    ("labels = {3 = 3}", "labels"),
    ('labels = {prod = "three"}', "labels"),
    ("labels = {prod = 0}", "labels"),
    ("labels = {prod = true}", "labels"),
    ("versions = true", "versions"),
    ("versions = 0", "versions"),
    ("versions = []", "versions"),
    ('versions = ["a"]', "versions"),
    ("memory_mib = 0", "memory_mib"),
    ("memory_mib = true", "memory_mib"),
    ("threads = 0", "threads is out of range"),
    ('max_rows = "a"', "max_rows is out of range"),
    ('device = "tpu"', "unknown device"),
    ("aliasses = []", "unknown setting 'aliasses'"),
    ('device = "cuda"\ncuda = {use_tf32 = 3}', "the option use_tf32 of cuda is wrong"),
    ('device = "cuda"\ncuda = {graphs = true}', "unknown option of cuda: 'graphs'"),
    ("cuda = {use_tf32 = false}", "options of cuda are for models on a GPU"),
    ('device = "cuda"\ncuda = 3', "cuda is not a dict of options"),
]


@rows(("line", "words"), WRONG, ids=[line for line, _ in WRONG])
def test_what_is_wrong(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        read(tmp_path, f"[models.m]\n{line}")
    assert words in caught.value.what and "ox.toml" in caught.value.what and caught.value.where == "[models.m]"


def test_an_unknown_key_names_all_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        read(tmp_path, "[models.m]\nlabel = {prod = 3}")
    assert {"labels", "aliases", "versions", "memory_mib", "threads"} <= set(str(caught.value.expected).split(", "))


@pytest.mark.parametrize("text", ["x = 1", "models = 3", "[models]\nm = 3", "[model.m]\nthreads = 1"])
def test_other_files(tmp_path: Path, text: str) -> None:
    with pytest.raises(LoadError, match="no such file"):
        read(tmp_path, text)


@pytest.mark.parametrize("data", [b"[models.m]\n\n= 3", b"a = [" * 5000], ids=["line", "deep"])
def test_no_toml(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "ox.toml").write_bytes(data)
    with pytest.raises(LoadError, match="not TOML") as caught:
        tables(tmp_path / "ox.toml")
    if len(data) < 100:
        assert "line 3" in str(caught.value.got)


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "ox.toml").write_bytes(b"\xff")
    with pytest.raises(LoadError, match="is not text"):
        tables(tmp_path / "ox.toml")
    (tmp_path / "ox.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(LoadError, match="too large"):
        tables(tmp_path / "ox.toml")
    with pytest.raises(LoadError, match="cannot be read"):
        tables(tmp_path)
