"""Models in S3, Hugging Face, MLflow and GCS: real clients against small servers on this machine."""

from __future__ import annotations

import importlib.util
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fsspec.config import conf
from stand_ins import GCS, S3, SECRET, HuggingFace, MLflow, StandIn, running

from ox import remote
from ox.errors import LoadError
from ox.installation import install_command
from ox.serve import ModelConfig, Server

ARTIFACTS = "1/models/m/artifacts"


@dataclass
class Case:
    """A store with `model.onnx`, its data and two versions below; addresses of the file and of the folder."""

    kind: type[StandIn]
    prefix: str
    file: str
    folder: str
    variable: str  # where the client reads the server's address
    secret: str  # and where what it shows


CASES = {
    "s3": Case(S3, "b/a/", "s3://b/a/model.onnx", "s3://b/a", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID"),
    "hf": Case(HuggingFace, "a/", "hf://owner/model/a/model.onnx", "hf://owner/model/a", "HF_ENDPOINT", "HF_TOKEN"),
    "gs": Case(
        GCS, "b/a/", "gs://b/a/model.onnx", "gs://b/a", "STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"
    ),
    "mlflow": Case(
        MLflow, f"{ARTIFACTS}/", "mlflow:runs:/r1/model.onnx", "mlflow:models:/digits/3", "MLFLOW_TRACKING_URI",
        "MLFLOW_TRACKING_TOKEN",
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def store(case: Case, model: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StandIn]]:
    library = {S3: "s3fs", GCS: "gcsfs", HuggingFace: "huggingface_hub"}.get(case.kind)
    if library is not None:
        pytest.importorskip(library, reason=f"{library} is not installed")
    names = ("model.onnx", "model.onnx.data", "digits/1/model.onnx", "digits/2/model.onnx", ".hidden", "README.md")
    files = {f"{case.prefix}{name}": model if name.endswith(".onnx") else b"text" for name in names}
    files["1/r1/artifacts/model.onnx"], files["1/r1/artifacts/model.onnx.data"] = model, b"text"
    with running(case.kind, files) as (address, handler):
        for name, value in {
            "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
            "AWS_EC2_METADATA_DISABLED": "true", "HF_HUB_DISABLE_TELEMETRY": "1", case.variable: address,
            case.secret: SECRET,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        for variable in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setitem(conf, "gs", {"token": "anon"})
        monkeypatch.setitem(conf, "hf", {"endpoint": address})  # HF_ENDPOINT is read once in a process
        yield handler


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_file_comes_with_its_data(case: Case, store: type[StandIn], model: bytes, cache: Path) -> None:
    said: list[str] = []
    path = remote.local_copy(case.file, said.append)
    assert path.read_bytes() == model and names(path.parent) == {"model.onnx", "model.onnx.data"}
    (line,) = said
    assert line.startswith(f"downloading {case.file}: 2 files, 0.0 MB")
    assert remote.local_copy(case.file, said.append) == path and len(said) == 1  # it is there
    assert [entry.name for entry in cache.iterdir()] == [path.parent.name]


def test_a_folder(case: Case, store: type[StandIn]) -> None:
    folder = remote.local_copy(case.folder)
    assert names(folder) == {
        "model.onnx", "model.onnx.data", "digits/1/model.onnx", "digits/2/model.onnx", "README.md",
    }  # fmt: skip


def test_a_new_content_is_downloaded(case: Case, store: type[StandIn]) -> None:
    first = remote.local_copy(case.folder)
    store.files[f"{case.prefix}model.onnx"] = b"something else"
    second = remote.local_copy(case.folder)
    assert first != second and (second / "model.onnx").read_bytes() == b"something else"


def test_it_is_served(case: Case, store: type[StandIn]) -> None:
    options = ModelConfig(device="cpu", instances=1)
    with (
        Server([case.file], name="digits", options=options) as server,
        urllib.request.urlopen(f"{server.url}/v2/models/digits/ready") as reply,
    ):
        assert reply.status == 200


def test_wrong_credentials(case: Case, store: type[StandIn], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.locked = True
    monkeypatch.setenv(case.secret, "another")
    with pytest.raises(LoadError, match="may not be read") as caught:
        remote.local_copy(case.file)
    assert case.secret in (caught.value.hint or "") and not cache.exists()
    monkeypatch.setenv(case.secret, SECRET)
    store.locked = case.kind is not GCS  # there the client is anonymous
    assert remote.local_copy(case.file).is_file()


@pytest.mark.parametrize("end", ["nothing.onnx", "nothing"])
def test_nothing_there(case: Case, store: type[StandIn], cache: Path, end: str) -> None:
    with pytest.raises(LoadError, match="there is nothing at"):
        remote.local_copy(case.file.replace("model.onnx", end))
    assert not cache.exists()


@pytest.mark.parametrize("name", ["{outside}", "../../../../../..{outside}", "1//evil", "a\\evil"])
def test_names_that_lead_elsewhere(
    case: Case, store: type[StandIn], cache: Path, tmp_path: Path, name: str
) -> None:  # fmt: skip
    """Nothing outside the cache is written, whatever a client makes of such names."""
    outside = tmp_path / "evil"
    store.files[f"{case.prefix}{name.format(outside=outside)}"] = b"evil"
    try:
        folder = remote.local_copy(case.folder)
    except LoadError as error:
        assert "name cannot be one here" in str(error)
        assert not cache.exists()
    else:  # a client that takes only the last part of a name, as that of MLflow
        assert all(path.resolve().is_relative_to(folder) for path in folder.rglob("*"))
    assert not outside.exists()


def test_half_a_file(case: Case, store: type[StandIn], cache: Path) -> None:
    store.cut = True
    with pytest.raises(LoadError, match=r"only in part|cannot be read"):
        remote.local_copy(case.file)
    assert not list(cache.iterdir())


@pytest.mark.parametrize("address", ["mlflow:models:/digits@champion", "mlflow:runs:/r1/model.onnx"])
@pytest.mark.parametrize("case", [CASES["mlflow"]], ids=["mlflow"])
def test_other_addresses_of_mlflow(case: Case, store: type[StandIn], address: str, model: bytes) -> None:
    path = remote.local_copy(address)
    assert (path if path.is_file() else path / "model.onnx").read_bytes() == model


@pytest.mark.skipif(importlib.util.find_spec("gcsfs") is not None, reason="gcsfs is installed: nothing is missing")
def test_a_missing_library() -> None:
    with pytest.raises(LoadError, match="gs:// addresses need gcsfs") as caught:
        remote.local_copy("gs://bucket/model.onnx")
    assert caught.value.hint == install_command("gs")
