"""Names, versions, files and links that want something outside the repository: nothing there is ever opened."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from rows import rows

from ox.serve import ModelConfig, Server
from ox.serve.protocol.rest.routes import TABLE
from ox.serve.protocol.rest.routing import ANY

WATCHED: dict[str, list[str] | None] = {"opened": None}


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    opened = WATCHED["opened"]
    if opened is not None and event in ("open", "os.listdir", "os.scandir") and arguments:
        path = arguments[0]
        opened.append(os.fsdecode(path) if isinstance(path, str | bytes) else str(path))


@contextmanager
def watching() -> Iterator[list[str]]:
    """What Python opens meanwhile, on every thread."""
    if not hasattr(sys, "_ox_watched"):
        sys.addaudithook(hook)  # for good: there is no way to take one back
        sys._ox_watched = True  # type: ignore[attr-defined]
    WATCHED["opened"] = opened = []
    try:
        yield opened
    finally:
        WATCHED["opened"] = None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, mlp: Path) -> Path:
    """A repository with one model, and beside it a secret model, which would load if it were found."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("repository/mlp/1", "secret/1", "secret/secret/1"):
        (folder / name).mkdir(parents=True)
        shutil.copy(mlp, folder / name / "model.onnx")
    shutil.copy(mlp, folder / "secret.onnx")
    shutil.copy(mlp, folder / "repository" / "mlp" / "hidden.onnx")
    (folder / "secret.txt").write_text("the secret")
    return folder


@pytest.fixture(scope="module")
def repository(place: Path) -> Iterator[Server]:
    with Server([place / "repository"], options=ModelConfig(instances=1), manage=True) as running:
        yield running


def names(place: Path) -> list[str]:
    wanted = ["secret", "secret.onnx", "secret.txt", "secret/1", "secret/1/model.onnx"]
    ways = ["../", "mlp/../../", "mlp/1/../../../", f"{place}/", "./../"]
    return [way + name for name in wanted for way in ways] + STRANGE


def outside(opened: list[str], place: Path) -> list[str]:
    inside = str(place / "repository")
    return [path for path in opened if str(place) in path and not path.startswith(inside)] + [
        path for path in opened if "passwd" in path or "secret" in path
    ]


STRANGE = [
    "..", ".", "", "~", "mlp/1", "mlp/hidden.onnx", "mlp\0", "secret\0.onnx", "..\\secret", "%2e%2e/secret", "*", "ml?",
    "file:../secret", "/etc/passwd", "\udcff", "x" * 5000, "con", "-rf", "$(id)", "{{7*7}}", "null",
]  # fmt: skip
CALLS = {(route.method, route.path) for route in TABLE if "{model}" in route.path and route.method != ANY}
TARGETS = [
    "/../secret.txt", "/v2/../../secret.txt", "/v2/models/../../secret.txt", "/v2/models/mlp/../../../secret.txt",
    "//secret.txt", "/./secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/..;/secret.txt", "file:///etc/passwd",
    "/v2/ox/../../secret.txt", "/static/../secret.txt", "/\\..\\secret.txt", "/docs/../secret.txt",
    "/v2/models/mlp/versions/../../../secret.txt", "/v2/models//etc/passwd", "secret.txt", "//v2/models/mlp",
]  # fmt: skip


@rows(("method", "path"), sorted(CALLS))
def test_names_and_versions(repository: Server, place: Path, connect: Any, method: str, path: str) -> None:
    with watching() as opened:
        for name in names(place):
            for model, version in ((name, "1"), ("mlp", name)):
                if "{version}" not in path and model == "mlp":
                    continue
                written, number = (quote(text, safe="", errors="surrogateescape") for text in (model, version))
                target = path.replace("{model}", written).replace("{version}", number).replace("{number}", "0")
                with connect(repository) as client:
                    status, _, body = client.ask(method, target, b"{}" if method == "POST" else b"")
                listed = not name and path == "/v1/models/{model}"  # without a name it is the list of models
                assert status in ((200,) if listed else (400, 404, 405, 414)), (name, status, body)
                assert b"the secret" not in body and b"Traceback" not in body
    assert not outside(opened, place)


def test_paths_of_urls(repository: Server, place: Path, connect: Any) -> None:
    """As they are, not percent-encoded: no part of a path is taken for a folder."""
    with watching() as opened:
        for target in TARGETS:
            with connect(repository) as client:
                status, _, body = client.ask("GET", target)
                assert status in (400, 404), (target, status)
                assert b"the secret" not in body and b"root:" not in body
    assert not outside(opened, place)


@rows("path", ["../x/model.onnx", "1/../../model.onnx", "/tmp/model.onnx", "1//model.onnx", "1/./m",
                                  "1/..", "0/model.onnx", "-1/model.onnx", "1\0/model.onnx", "1/a\0b", "1\\model.onnx",
                                  "1/.hidden", "", "1", "~/model.onnx", "1/" + "x" * 300])  # fmt: skip
def test_files_that_a_load_call_brings(repository: Server, place: Path, connect: Any, path: str) -> None:
    before = sorted(str(found) for found in place.rglob("*"))
    content = base64.b64encode((place / "secret.onnx").read_bytes()).decode()
    with connect(repository) as client:
        body = json.dumps({"parameters": {"config": "{}", f"file:{path}": content}}).encode()
        status, _, answer = client.ask("POST", "/v2/repository/models/brought/load", body)
    assert status == 400, answer
    assert sorted(str(found) for found in place.rglob("*")) == before


@pytest.mark.parametrize("what", ["model", "folder", "version", "config", "bare"])
def test_links_that_lead_out(place: Path, tmp_path: Path, mlp: Path, connect: Any, what: str) -> None:
    folder = tmp_path / "repository"
    (folder / "linked" / "1").mkdir(parents=True)
    if what == "model":
        (folder / "linked" / "1" / "model.onnx").symlink_to(place / "secret.onnx")
    elif what == "folder":
        shutil.rmtree(folder / "linked")
        (folder / "linked").symlink_to(place / "secret")
    elif what == "version":
        (folder / "linked" / "1").rmdir()
        (folder / "linked" / "1").symlink_to(place / "secret" / "1")
    elif what == "config":
        shutil.copy(mlp, folder / "linked" / "1" / "model.onnx")
        (folder / "linked" / "config.pbtxt").symlink_to(place / "secret.txt")
    else:
        (folder / "linked.onnx").symlink_to(place / "secret.onnx")
    shutil.copy(mlp, folder / "good.onnx")
    with (
        watching() as opened,
        Server([folder], options=ModelConfig(instances=1), manage=True) as server,
        connect(server) as client,
    ):
        assert client.ask("GET", "/v2/models/good/ready")[0] == 200
        assert client.ask("GET", "/v2/models/linked/ready")[0] != 200
        assert client.ask("POST", "/v2/repository/models/linked/load", b"{}")[0] >= 400
        assert client.ask("GET", "/v2/models/linked/ready")[0] != 200
    assert not [path for path in opened if path.startswith(str(place / "secret"))]  # the other server looks at its own
