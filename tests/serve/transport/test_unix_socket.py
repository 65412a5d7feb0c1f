"""A server on a Unix domain socket: what it speaks there, whose the file is, and when it goes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ox.clock import Clock
from ox.errors import ServeError
from ox.serve import ModelConfig, Server
from ox.serve.transport.unix_socket import MAX_PATH_BYTES, UnixSocket

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix domain sockets here")
QUICK = ModelConfig(device="cpu", instances=1)
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}).encode()


@pytest.fixture
def path() -> Iterator[str]:
    """Short: a test's own folder may be too deep for an address."""
    with tempfile.TemporaryDirectory() as folder:
        yield f"{folder}/ox.sock"


@contextmanager
def bound(path: str) -> Iterator[UnixSocket]:
    made = UnixSocket(path)
    with made.socket:
        yield made


@pytest.fixture
def client(connect: Any, path: str) -> Any:
    """Makes clients of the socket."""

    class Local(connect):  # type: ignore[misc]
        def __init__(self) -> None:
            self.socket, self.buffer = socket.socket(socket.AF_UNIX), b""
            self.socket.settimeout(120)
            self.socket.connect(path)

    return Local


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_http_without_a_port(mlp: Path, path: str, client: Any, kind: str) -> None:
    clock = Clock()
    if kind == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop is not installed")
    else:
        clock.new_event_loop = asyncio.new_event_loop  # type: ignore[method-assign]
    with Server([mlp], uds=path, port=None, options=QUICK, clock=clock) as server:
        assert server.url == f"unix:{path}" and server.port is None and server.grpc_port is None
        assert f"unix:{path} · V2 protocol" in server.greeting()[-1]
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        for _ in range(40):
            with client() as connected:
                assert connected.ask("POST", "/v2/models/mlp/infer", BODY)[0] == 200
    assert not os.path.exists(path)


def test_beside_a_port(mlp: Path, path: str, client: Any, connect: Any) -> None:
    with Server([mlp], uds=path, options=QUICK) as server:
        assert server.url == f"http://127.0.0.1:{server.port}" and f"unix:{path}" in server.greeting()[-1]
        with client() as local, connect(server) as remote:
            assert local.ask("GET", "/v2")[2] == remote.ask("GET", "/v2")[2]


def test_grpc(mlp: Path, path: str) -> None:
    triton = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
    with Server([mlp], uds=path, port=None, options=QUICK), triton.InferenceServerClient(f"unix:{path}") as asked:
        tensor = triton.InferInput("x", [2, 64], "FP32")
        tensor.set_data_from_numpy(np.ones((2, 64), np.float32))
        assert asked.is_server_ready() and asked.infer("mlp", [tensor]).as_numpy("y").shape == (2, 10)


@pytest.mark.parametrize("version", ["--http1.0", "--http1.1", "--http2", "--http2-prior-knowledge"])
def test_curl(mlp: Path, path: str, version: str) -> None:
    curl = shutil.which("curl")
    if curl is None or b"HTTP2" not in subprocess.run([curl, "--version"], capture_output=True, check=True).stdout:
        pytest.skip("no curl here that speaks HTTP/2")
    url = "http://localhost/v2/models/mlp/infer"
    with Server([mlp], uds=path, port=None, options=QUICK):
        command = [curl, "-sS", version, "--unix-socket", path, "--data-binary", BODY.decode(), url]
        assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["model_name"] == "mlp"


def test_the_file_of_a_server_that_is_gone(path: str) -> None:
    gone = UnixSocket(path)
    gone.socket.close()
    with bound(path) as made:
        made.remove()
    assert not os.path.exists(path)


def test_the_file_of_a_server_that_is_there(mlp: Path, path: str, client: Any) -> None:
    with Server([mlp], uds=path, port=None, options=QUICK):
        with pytest.raises(ServeError, match="another server listens there"):
            UnixSocket(path)
        with client() as connected:
            assert connected.ask("GET", "/v2")[0] == 200


def test_the_file_of_the_next_server_stays(path: str) -> None:
    with bound(path) as first:
        os.unlink(path)
        with bound(path) as second:
            first.remove()
            assert os.path.exists(path)
            second.remove()
            second.remove()  # it is gone already
    assert not os.path.exists(path)


def test_a_file_that_cannot_be_removed_does_not_hinder_the_end(
    mlp: Path, tmp_path: Path, path: str, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As root as well: the folder is a file now."""
    folder = Path(path).parent
    with Server([mlp], uds=path, port=None, options=QUICK), client() as connected:
        assert connected.ask("GET", "/v2")[0] == 200
        folder.rename(tmp_path / "moved")
        folder.write_text("")
    assert f"cannot remove the file of the Unix domain socket {path}: [Errno 20]" in caplog.text
    folder.unlink()
    folder.mkdir()  # whoever made it takes it away


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_left_alone(path: str, kind: str) -> None:
    if kind == "file":
        Path(path).write_text("mine")
    elif kind == "folder":
        Path(path).mkdir()
    else:
        Path(path).symlink_to("/nowhere")
    with pytest.raises(ServeError, match="is not a socket"):
        UnixSocket(path)
    assert os.path.lexists(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [("x" * MAX_PATH_BYTES, "too long"), ("no/such/folder", "a folder that exists"), ("a\0b", "null byte")],
)
def test_paths_that_cannot_be(path: str, name: str, words: str) -> None:
    with pytest.raises(ServeError, match=words):
        UnixSocket(f"{path}/../{name}" if name[0] == "n" else f"{Path(path).parent}/{name}")


def test_nothing_is_left_where_the_start_fails(mlp: Path, path: str) -> None:
    with Server([mlp], options=QUICK) as other:
        grpc_port = other.port
        with pytest.raises(ServeError, match="in use"), Server([mlp], uds=path, grpc_port=grpc_port, options=QUICK):
            pass
    assert not os.path.exists(path)


def test_all_clients_share_a_rate(mlp: Path, path: str, client: Any) -> None:
    with Server([mlp], uds=path, port=None, rate=0.01, options=QUICK):
        seen = []
        for _ in range(4):
            with client() as connected:
                seen.append(connected.ask("GET", "/v2")[0])
    assert seen == [200, 429, 429, 429]


def test_keys_are_asked_for(mlp: Path, path: str, client: Any, tmp_path: Path) -> None:
    from ox.serve.access import keyfile
    from ox.serve.access.key import Key, digest_of

    keyfile.write(tmp_path / "keys.toml", [Key("a", digest_of(b"ox_a"))])
    with Server([mlp], uds=path, port=None, options=QUICK, keys=tmp_path / "keys.toml"), client() as connected:
        assert connected.ask("POST", "/v2/models/mlp/infer", BODY)[0] == 401
        assert connected.ask("POST", "/v2/models/mlp/infer", BODY, {"x-api-key": "ox_a"})[0] == 200
