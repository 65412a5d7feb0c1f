"""Small stores on 127.0.0.1 that speak as much of S3, GCS, Hugging Face and MLflow as their clients ask for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

SECRET = "the-right-one"


class StandIn(BaseHTTPRequestHandler):
    """Hands out `files`; only to those who show `SECRET` if `locked`; with `cut`, half of each file."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]
    locked = False
    cut = False
    requests: list[str]

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.requests.append(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        if self.locked and SECRET not in self.headers.get("Authorization", ""):
            self.deny()
            return
        url = urlsplit(self.path)
        self.reply(unquote(url.path), {name: values[0] for name, values in parse_qs(url.query).items()})

    do_HEAD = do_POST = do_GET

    def deny(self) -> None:
        self.send(b'{"error": "who are you"}', 401)

    def reply(self, path: str, query: dict[str, str]) -> None:
        raise NotImplementedError

    def send(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, document: Any, status: int = 200) -> None:
        self.send(json.dumps(document).encode(), status, Content_Type="application/json")

    def send_file(self, content: bytes, **headers: str) -> None:
        """A file, or the range of it that was asked for."""
        whole, status = len(content), 200
        if (asked := self.headers.get("Range", "")).startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            content, status = content[int(first) : int(last or whole) + 1], 206
            headers["Content_Range"] = f"bytes {first}-{int(first) + len(content) - 1}/{whole}"
        if self.cut and self.command == "GET":
            content = content[: len(content) // 2]
        self.send(content, status, ETag=f'"{hashlib.md5(content).hexdigest()}"', **headers)

    def below(self, folder: str) -> list[tuple[str, bytes]]:
        """Files in a folder and in those below it."""
        return [(name, content) for name, content in self.files.items() if name.startswith(folder)]


class S3(StandIn):
    """Paths are ``/bucket/key``; `files` has both."""

    def deny(self) -> None:
        self.send(b"<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>", 403)

    def reply(self, path: str, query: dict[str, str]) -> None:
        bucket, _, key = path.lstrip("/").partition("/")
        if not key:
            self._list(bucket, query.get("prefix", ""), query.get("delimiter", ""))
        elif (content := self.files.get(f"{bucket}/{key}")) is None:
            self.send(b"<Error><Code>NoSuchKey</Code><Message>nothing</Message></Error>", 404)
        else:
            self.send_file(content, Last_Modified="Mon, 02 Nov 2026 12:00:00 GMT")

    def _list(self, bucket: str, prefix: str, delimiter: str) -> None:
        rows, folders = [], set()
        for name, content in self.below(f"{bucket}/{prefix}"):
            key = name.partition("/")[2]
            inner, cut, _ = key.removeprefix(prefix).partition("/")
            if delimiter and cut:
                folders.add(f"{prefix}{inner}/")
                continue
            tag = hashlib.md5(content).hexdigest()
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size><ETag>&quot;{tag}&quot;</ETag>"
                "<LastModified>2026-11-02T12:00:00Z</LastModified></Contents>"
            )
        rows += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)]
        text = f"<ListBucketResult><KeyCount>{len(rows)}</KeyCount><IsTruncated>false</IsTruncated>{''.join(rows)}"
        self.send(f"{text}</ListBucketResult>".encode(), Content_Type="application/xml")


class GCS(StandIn):
    """The JSON interface of Google Cloud Storage; `files` has ``bucket/key``."""

    def reply(self, path: str, query: dict[str, str]) -> None:
        bucket, _, key = path.removeprefix("/download").removeprefix("/storage/v1/b/").partition("/o")
        name = bucket + key
        if not key:
            self._list(bucket, query.get("prefix", ""), query.get("delimiter", ""))
        elif (content := self.files.get(name)) is None:
            self.send_json({"error": {"message": "No such object"}}, 404)
        elif query.get("alt") == "media":
            self.send_file(content)
        else:
            self.send_json(self._row(name, content))

    def _list(self, bucket: str, prefix: str, delimiter: str) -> None:
        rows, folders = [], set()
        for name, content in self.below(f"{bucket}/{prefix}"):
            inner, cut, _ = name.removeprefix(f"{bucket}/{prefix}").partition("/")
            if delimiter and cut:
                folders.add(f"{prefix}{inner}/")
            else:
                rows.append(self._row(name, content))
        self.send_json({"items": rows, "prefixes": sorted(folders)})

    def _row(self, name: str, content: bytes) -> dict[str, str]:
        bucket, _, key = name.partition("/")
        times = dict.fromkeys(("updated", "timeCreated"), "2026-11-02T12:00:00.000Z")
        return {
            "name": key,
            "bucket": bucket,
            "size": str(len(content)),
            "etag": hashlib.md5(content).hexdigest(),
            **times,
        }


class HuggingFace(StandIn):
    """One model, `owner/model`; `files` has its files."""

    def reply(self, path: str, query: dict[str, str]) -> None:
        path = path.lstrip("/")
        api = "api/models/owner/model"
        if path.startswith("owner/model/resolve/main/"):
            self._file(path.removeprefix("owner/model/resolve/main/"))
        elif path in (api, f"{api}/revision/main"):
            self.send_json({"id": "owner/model", "sha": "a" * 40, "siblings": []})
        elif path.startswith(f"{api}/tree/main"):
            self._tree(path.removeprefix(f"{api}/tree/main").strip("/"), query.get("recursive") == "true")
        else:
            self.send_json({"error": "not found"}, 404)

    def _file(self, name: str) -> None:
        if name in self.files:
            self.send_file(self.files[name])
        else:
            self.send_json({"error": "not found"}, 404)

    def _tree(self, folder: str, recursive: bool) -> None:
        prefix = f"{folder}/" if folder else ""
        rows: dict[str, dict[str, Any]] = {}
        for name, content in self.below(prefix):
            inner, cut, _ = name.removeprefix(prefix).partition("/")
            if cut:
                rows[prefix + inner] = {"type": "directory", "path": prefix + inner, "oid": "d" * 40, "size": 0}
            if not cut or recursive:
                oid = hashlib.sha1(content).hexdigest()
                rows[name] = {"type": "file", "path": name, "oid": oid, "size": len(content)}
        if rows:
            self.send_json(list(rows.values()))
        else:
            self.send_json({"error": "not found"}, 404)


class MLflow(StandIn):
    """A registry with version 3 of `digits`, called `champion`, and the run `r1`; `files` has artifacts by path."""

    location = "mlflow-artifacts:/1/models/m/artifacts"
    artifacts = "/api/2.0/mlflow-artifacts/artifacts"

    def reply(self, path: str, query: dict[str, str]) -> None:
        call = path.removeprefix("/api/2.0/mlflow/")
        known = query.get("name", "digits") == "digits" and query.get("version", "3") == "3"
        if call == "registered-models/alias" and known and query["alias"] == "champion":
            self.send_json({"model_version": {"name": "digits", "version": "3"}})
        elif call == "model-versions/get-download-uri" and known:
            self.send_json({"artifact_uri": self.location})
        elif call == "runs/get" and query["run_id"] == "r1":
            self.send_json({"run": {"info": {"artifact_uri": "mlflow-artifacts:/1/r1/artifacts"}}})
        elif path == self.artifacts:
            self._list(query["path"])
        elif path.startswith(f"{self.artifacts}/") and (name := path.removeprefix(f"{self.artifacts}/")) in self.files:
            self.send_file(self.files[name])
        else:
            self.send_json({"error_code": "RESOURCE_DOES_NOT_EXIST"}, 404)

    def _list(self, folder: str) -> None:
        rows: dict[str, dict[str, Any]] = {}
        for name, content in self.below(f"{folder}/"):
            inner, cut, _ = name.removeprefix(f"{folder}/").partition("/")
            rows[inner] = {"path": inner, "is_dir": True} if cut else {"path": inner, "file_size": len(content)}
        self.send_json({"root_uri": "mlflow-artifacts:/", "files": list(rows.values())})


@contextmanager
def running(kind: type[StandIn], files: dict[str, bytes], **settings: Any) -> Iterator[tuple[str, type[StandIn]]]:
    """The address of a store, and its class, whose attributes may be changed."""
    handler = type(kind.__name__, (kind,), {"files": files, "requests": [], **settings})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", handler
        finally:
            server.shutdown()
            thread.join()
