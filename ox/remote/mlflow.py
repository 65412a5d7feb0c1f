"""Models of an MLflow server, by its REST interface: the library `mlflow` would bring dozens of others."""

from __future__ import annotations

import base64
import json
import os
import shutil
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ox.errors import LoadError
from ox.remote.address import Address, is_address, parse

API = "api/2.0/mlflow"
PROXIED = "mlflow-artifacts:/"  # artifacts that the server itself hands out
DEPTH, MOST_FILES = 16, 10_000
TIMEOUT_S = 60.0
MOST_JSON = 16 << 20


class _NoRedirect(HTTPRedirectHandler):
    """A token must not follow a redirect to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = build_opener(_NoRedirect)


def artifact_location(path: str) -> Address | str:
    """Where a model's files lie: the address of another store, or a path for `MlflowArtifacts`.

    Args:
        path: ``models:/NAME/VERSION``, ``models:/NAME@ALIAS`` or ``runs:/RUN/PATH``.

    Raises:
        LoadError: the path has another form, no server is named, or the files lie where only the server can read them.
        OSError: the server does not answer, or knows no such model.
    """
    kind, _, rest = path.partition(":/")
    name, _, last = rest.partition("/")
    inner = ""
    if kind == "models" and "@" in name and not last:
        name, _, alias = name.partition("@")
        reply = _json(f"{API}/registered-models/alias", name=name, alias=alias)
        last = str(reply["model_version"]["version"])
    if kind == "models" and name and last.isdecimal():
        location = _json(f"{API}/model-versions/get-download-uri", name=name, version=last)["artifact_uri"]
    elif kind == "runs" and name and last:
        location, inner = _json(f"{API}/runs/get", run_id=name)["run"]["info"]["artifact_uri"], f"/{last}"
    else:
        expected = "mlflow:models:/name/1, mlflow:models:/name@alias or mlflow:runs:/run/model"
        raise LoadError("MLflow has no such address", where="", expected=expected, got=f"mlflow:{path}")
    location = f"{location}{inner}"
    if location.startswith(PROXIED) and not location.startswith(f"{PROXIED}/"):
        return location.removeprefix(PROXIED).strip("/")
    if is_address(location) and urlsplit(location).scheme in ("s3", "gs"):
        return parse(location)
    raise LoadError(
        f"the files of mlflow:{path} cannot be read from here", where="", got=location[:200],
        expected="an artifact store in s3:// or gs://, or a server that serves artifacts itself",
        hint="mlflow server --serve-artifacts",
    )  # fmt: skip


class MlflowArtifacts:
    """The artifacts that the server hands out; the methods are those of an fsspec file system."""

    def info(self, path: str) -> dict[str, Any]:
        """Raises FileNotFoundError: there is nothing."""
        folder, _, name = path.rpartition("/")
        for entry in self._entries(folder):
            if entry["path"].rpartition("/")[2] == name:
                return {"type": "directory" if entry.get("is_dir") else "file", "size": _size(entry)}
        raise FileNotFoundError(f"the server has no artifact {path}")

    def find(self, path: str, *, detail: bool = True) -> dict[str, dict[str, Any]]:
        """All files below a folder."""
        found: dict[str, dict[str, Any]] = {}
        folders = [(path, 0)]
        while folders:
            folder, depth = folders.pop()
            for entry in self._entries(folder):
                inner = f"{folder}/{entry['path'].rpartition('/')[2]}"
                if not entry.get("is_dir"):
                    found[inner] = {"type": "file", "size": _size(entry)}
                elif depth < DEPTH:
                    folders.append((inner, depth + 1))
                if len(found) + len(folders) > MOST_FILES:
                    raise LoadError(f"{path} holds too much", where="", expected=f"at most {MOST_FILES:,} files")
        return found

    def get_file(self, path: str, target: str) -> None:
        """Copies an artifact to a file."""
        with _open(f"api/2.0/mlflow-artifacts/artifacts/{quote(path)}") as reply, open(target, "wb") as file:
            shutil.copyfileobj(reply, file, 1 << 20)

    def _entries(self, folder: str) -> list[dict[str, Any]]:
        return list(_json("api/2.0/mlflow-artifacts/artifacts", path=folder).get("files", []))


def _size(entry: dict[str, Any]) -> int:
    return int(entry.get("file_size") or 0)


def _json(call: str, **query: str) -> dict[str, Any]:
    with _open(f"{call}?{urlencode(query)}") as reply:
        answer: dict[str, Any] = json.loads(reply.read(MOST_JSON))
    return answer


def _open(target: str) -> IO[bytes]:
    server = os.environ.get("MLFLOW_TRACKING_URI", "").rstrip("/")
    if urlsplit(server).scheme not in ("http", "https"):
        raise LoadError(
            "mlflow: addresses need a server", where="", got=f"MLFLOW_TRACKING_URI={server}",
            expected="the address of an MLflow server in MLFLOW_TRACKING_URI",
        )  # fmt: skip
    headers = {}
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    elif user:
        headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
    try:
        reply: IO[bytes] = _opener.open(Request(f"{server}/{target}", headers=headers), timeout=TIMEOUT_S)
    except HTTPError as error:
        with error:
            if error.code == 404:
                raise FileNotFoundError(f"the server answers 404 to {target}") from None
            raise
    return reply
