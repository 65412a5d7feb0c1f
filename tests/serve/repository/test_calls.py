"""Load and unload calls."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from rows import rows
from waiting import give_way

from ox.errors import ServeError
from ox.serve import Server
from ox.serve.repository.change_steps import ChangeSteps


@pytest.fixture
def server(make: Any, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """m with versions 1 and 2, and n; not watched. Temporary folders go to tmp_path / "temporary"."""
    for number in (1, 2):
        make(tmp_path / "models" / "m" / str(number) / "model.onnx", number)
    make(tmp_path / "models" / "n.onnx", 7)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with serve(tmp_path / "models", watch=False, manage=True) as running:
        yield running
    assert list((tmp_path / "temporary").iterdir()) == []


def call(server: Server, name: str, *arguments: Any) -> Any:
    """A call of the service, on the server's loop."""
    work = getattr(server.service, name)(*arguments)
    return asyncio.run_coroutine_threadsafe(work, server._loop).result(120)


def refused(server: Server, name: str, *arguments: Any) -> ServeError:
    with pytest.raises(ServeError) as caught:
        call(server, name, *arguments)
    return caught.value


def test_unload_and_load(server: Server, caller: Any, eventually: Any) -> None:
    client = caller(server)
    assert call(server, "unload", "m", {"unload_dependents": True}) == {}
    status, error = client.infer("m")
    assert status == 400 and "unloaded by a call" in error
    assert client.ask("/v2/models/m/ready")[0] == 400 and client.infer("n")[0] == 200
    eventually(lambda: client.index("m")["2"] == ("UNAVAILABLE", "unloaded by a call"))
    assert [row["name"] for row in server.service.index(ready=True)] == ["n"]
    call(server, "unload", "m", {})  # nothing is left to do
    assert call(server, "load", "m", {}) == {}
    assert client.infer("m") == (200, (2, 2.0))


def test_load_takes_what_is_new(server: Server, make: Any, caller: Any, tmp_path: Path) -> None:
    client = caller(server)
    model = server.models[0]
    call(server, "load", "m", {})
    assert server.models[0] is model  # nothing has changed
    make(tmp_path / "models" / "m" / "3" / "model.onnx", 3)
    call(server, "load", "m", {})
    assert client.infer("m") == (200, (3, 3.0))
    make(tmp_path / "models" / "new.onnx", 4)
    call(server, "load", "new", {})
    assert client.infer("new") == (200, (1, 4.0))
    shutil.rmtree(tmp_path / "models" / "m")
    assert refused(server, "load", "m", {}).status == 404 and client.infer("m") == (200, (3, 3.0))


def test_a_load_that_fails(server: Server, caller: Any, tmp_path: Path) -> None:
    (tmp_path / "models" / "m" / "3").mkdir()
    (tmp_path / "models" / "m" / "3" / "model.onnx").write_bytes(b"no model")
    for _ in range(2):  # tried again, because somebody asks
        error = refused(server, "load", "m", {})
        assert error.status == 400 and "not an ONNX file" in error.what and "version 2 keeps serving" in error.what
    assert server.model_manager.loads["m", "failed"] == 2
    assert caller(server).infer("m") == (200, (2, 2.0)) and caller(server).infer("n")[0] == 200


def test_unknown_names(server: Server) -> None:
    for name in ("nobody", "../n", "n/1", "", "m\0", "/etc/passwd", "x" * 100_000):
        error = refused(server, "load", name, {})
        assert error.status == (404 if name == "nobody" else 400) and len(str(error)) < 500
        assert refused(server, "unload", name, {}).status == 404
    assert {row["name"] for row in server.service.index()} == {"m", "n"}
    assert set(server.model_manager._change_locks.locks) <= {"m", "n"}


def test_a_configuration(server: Server, caller: Any) -> None:
    config = {"max_batch_size": 3, "version_policy": {"all": {}}, "instance_group": [{"count": 2}]}
    call(server, "load", "m", {"config": json.dumps(config)})
    assert caller(server).infer("m/versions/1") == (200, (1, 1.0))
    told = server.service.model_config("m")
    assert told["max_batch_size"] == 3 and told["version_policy"] == {"all": {}}
    assert told["instance_group"][0]["count"] == 2
    call(server, "load", "m", {})
    assert caller(server).infer("m/versions/1")[0] == 400
    told = server.service.model_config("m")
    assert refused(server, "load", "m", {"config": '{"default_model_filename": "other.onnx"}'}).status == 400
    assert server.service.model_config("m") == told  # what was refused is not said of what runs


def test_files(server: Server, make: Any, caller: Any, tmp_path: Path) -> None:
    client = caller(server)
    data = {value: make(tmp_path / "other" / f"{value}.onnx", value).read_bytes() for value in (50, 60)}
    files = {"file:5/model.onnx": base64.b64encode(data[50]).decode(), "file:6/model.onnx": data[60]}
    call(server, "load", "m", files)
    assert client.infer("m") == (200, (6, 60.0)) and client.infer("m/versions/2")[0] in (400, 404)
    folders = list((tmp_path / "temporary").iterdir())
    assert len(folders) == 1 and folders[0].stat().st_mode & 0o077 == 0
    assert not (tmp_path / "models" / "m" / "6").exists()
    call(server, "load", "brand new", {"file:1/model.onnx": data[50]})
    assert client.infer("brand%20new") == (200, (1, 50.0))
    call(server, "load", "m", {})
    assert client.infer("m") == (200, (2, 2.0)) and len(list((tmp_path / "temporary").iterdir())) == 1
    call(server, "unload", "brand new", {})
    assert client.infer("brand%20new")[0] in (400, 404) and not list((tmp_path / "temporary").iterdir())


def test_files_that_fail(server: Server, make: Any, caller: Any, tmp_path: Path) -> None:
    client = caller(server)
    error = refused(server, "load", "m", {"file:2/model.onnx": b"no model"})
    assert error.status == 400 and error.what.startswith("2/model.onnx is not an ONNX file")
    assert str(tmp_path) not in str(error)  # nothing of where the files are kept
    assert client.infer("m") == (200, (2, 2.0)) and not list((tmp_path / "temporary").iterdir())
    assert refused(server, "load", "m", {"file:1/other.onnx": b"no model"}).status == 400
    assert refused(server, "load", "m", {"file:1/a": b"", "file:1/a/b": b""}).status == 400
    assert client.infer("m") == (200, (2, 2.0)) and not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    "path",
    ["", "model.onnx", "1/", "0/model.onnx", "01/model.onnx", "-1/model.onnx", "a/model.onnx", "1/../../x",
     "/1/model.onnx", "1/.hidden", "1//model.onnx", "1/..", "1/a\0b", "1/a\\b", "1/\n", "../1/model.onnx",
     "1/" + "x" * 101],
)  # fmt: skip
def test_paths_that_lead_elsewhere(server: Server, tmp_path: Path, path: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    error = refused(server, "load", "m", {f"file:{path}": b"x"})
    assert error.status == 400 and "names no file of a version" in error.what
    assert sorted(tmp_path.rglob("*")) == before


@rows(
    "parameters",
    [{"file:1/model.onnx": "not base64!"}, {"file:1/model.onnx": 3}, {"file:1/model.onnx": None}, {"config": 3},
     {"config": "{"}, {"config": '{"nope": 1}'}, {"config": '{"backend": "python"}'}, {"other": 1},
     {"config": '{"default_model_filename": "../x"}'}, {f"file:1/{number}": b"" for number in range(101)}],
)  # fmt: skip
def test_parameters_that_are_wrong(server: Server, caller: Any, parameters: dict[str, Any]) -> None:
    assert refused(server, "load", "m", parameters).status == 400
    assert caller(server).infer("m") == (200, (2, 2.0)) and caller(server).index("m")["2"] == ("READY", "")
    assert refused(server, "unload", "m", {"unload_dependents": "yes"}).status == 400


def test_a_configuration_that_is_wrong_is_logged_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    refused(server, "load", "m", {"config": '{"default_model_filename": "../other.onnx"}'})
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.count("m: ") == 1 and line.startswith("m: ")


NO_NAMES = ["", ".", "..", " ", "\t", "\u2003", " a", "a ", "a\u00a0", "a/b", "a\\b", "/", "a\0", "\n", "a\nb", "\x7f",
            "\u202ea", "\ud800", "a\ufffd", "x" * 201]  # fmt: skip


@rows("name", NO_NAMES, ids=ascii)
@rows("parameters", [{}, {"file:1/model.onnx": b"x"}, {"config": "{}"}])
def test_names_that_are_none(server: Server, name: str, parameters: dict[str, Any]) -> None:
    error = refused(server, "load", name, parameters)
    assert error.status == 400 and "cannot be the name" in error.what and error.got == ascii(name[:100])
    assert set(server.service.repository.entries) == {"m", "n"}


@rows("name", ["..", "%2E%2e", "%20", "%2E", "%ff", "a%80", "a%2Fb", "%09", "a%20", "%00", "x" * 201])
def test_names_that_are_none_over_http(server: Server, caller: Any, name: str) -> None:
    for parameters in ({}, {"file:1/model.onnx": ""}):
        answer = caller(server).ask(f"/v2/repository/models/{name}/load", {"parameters": parameters})
        assert answer[0] == 400 and "cannot be the name" in answer[1]
    assert set(server.service.repository.entries) == {"m", "n"}


def test_a_call_that_nobody_waits_for(
    server: Server, make: Any, caller: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has gone: nothing of it stays, and the next call goes ahead."""
    data = make(tmp_path / "other" / "m.onnx", 5).read_bytes()
    begun, prepare = asyncio.Event(), ChangeSteps.prepare

    def told(*arguments: Any) -> None:
        prepare(*arguments)
        begun.set()

    monkeypatch.setattr(ChangeSteps, "prepare", told)

    async def leave() -> None:
        task = asyncio.ensure_future(server.service.load("new", {"file:1/model.onnx": data}))
        await begun.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run_coroutine_threadsafe(leave(), server._loop).result(120)
    assert caller(server).index("new") == {} and not list((tmp_path / "temporary").iterdir())
    call(server, "load", "new", {"file:1/model.onnx": data})
    assert caller(server).infer("new") == (200, (1, 5.0))


def test_a_call_that_leaves_while_its_files_are_written(
    server: Server, eventually: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, real = threading.Event(), threading.Event(), Path.write_bytes

    def slow(path: Path, content: bytes) -> int:
        begun.set()
        assert go.wait(120)
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", slow)

    async def leave() -> None:
        task = asyncio.ensure_future(server.service.load("new", {"file:1/model.onnx": b"x"}))
        assert await asyncio.to_thread(begun.wait, 120)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run_coroutine_threadsafe(leave(), server._loop).result(120)
    assert list((tmp_path / "temporary").iterdir())
    go.set()
    eventually(lambda: not list((tmp_path / "temporary").iterdir()))


def test_names_of_what_never_ran_do_not_pile_up(server: Server) -> None:
    model_manager = server.service.model_manager
    assert model_manager is not None
    for number in range(5):
        assert refused(server, "load", f"new{number}", {"file:1/model.onnx": b"no model"}).status == 400
        assert refused(server, "load", f"new{number}", {"file:1/model.onnx": b"", "config": "{"}).status == 400
        assert refused(server, "load", f"new{number}", {"file:1/other.onnx": b"no model"}).status == 400
    assert set(server.service.repository.entries) == {"m", "n"} and not model_manager._change_locks.locks
    assert not any(name.startswith("new") for name, _ in model_manager.loads)
    assert refused(server, "unload", "new1", {}).status == 404
    assert refused(server, "load", "m", {"file:9/model.onnx": b"no model"}).status == 400
    assert "m" in server.service.repository.entries


def test_a_full_disk(server: Server, caller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    error = refused(server, "load", "m", {"file:1/model.onnx": b"x"})
    assert error.status == 507 and "No space left" in str(error.got)
    assert caller(server).infer("m") == (200, (2, 2.0))


def test_no_folder_for_temporary_files(server: Server, caller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/secret']")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    error = refused(server, "load", "m", {"file:1/model.onnx": b"x"})
    assert error.status == 507 and "/secret" not in str(error)
    assert caller(server).infer("m") == (200, (2, 2.0))


def test_calls_of_one_model_take_turns(server: Server, make: Any, caller: Any, tmp_path: Path) -> None:
    async def many() -> list[Any]:
        work = []
        for value in range(10):
            data = make(tmp_path / "other" / "m.onnx", value).read_bytes()
            work.append(server.service.unload("m", {}))
            work.append(server.service.load("m", {"file:1/model.onnx": data}))
        return await asyncio.gather(*work)

    asyncio.run_coroutine_threadsafe(many(), server._loop).result(60)
    assert caller(server).infer("m") == (200, (1, 9.0))
    assert len(list((tmp_path / "temporary").iterdir())) == 1


def test_calls_go_before_the_disk(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    """Watching neither brings back what was unloaded, nor replaces what a call brought; a load call ends both."""
    path = make(tmp_path / "m.onnx", 1)
    with serve(tmp_path) as server:
        client = caller(server)
        data = make(tmp_path / "aside" / "x", 5).read_bytes()
        call(server, "load", "m", {"file:1/model.onnx": data})
        make(path, 2)
        make(tmp_path / "n.onnx", 1)
        eventually(lambda: client.infer("n")[0] == 200)  # so the disk has been looked at
        assert client.infer("m") == (200, (1, 5.0))
        call(server, "unload", "m", {})
        make(path, 3)
        make(tmp_path / "o.onnx", 1)
        eventually(lambda: client.infer("o")[0] == 200)
        assert client.infer("m")[0] == 400
        call(server, "load", "m", {})
        assert client.infer("m") == (200, (1, 3.0))
        make(path, 4)
        eventually(lambda: client.infer("m") == (200, (1, 4.0)))
        call(server, "unload", "m", {})
        os.unlink(path)
        eventually(lambda: client.infer("m")[0] == 404)
        make(path, 6)  # another model of that name
        eventually(lambda: client.infer("m") == (200, (1, 6.0)))


def test_a_server_whose_models_are_fixed(server: Server) -> None:
    server.service.model_manager = None
    assert refused(server, "load", "m", {}).status == refused(server, "unload", "m", {}).status == 501
    server.service.model_manager = server.model_manager


def test_calls_before_the_start(make: Any, serve: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that begins later than others is told what they were told, before it listens."""
    make(tmp_path / "m.onnx", 1)
    make(tmp_path / "n.onnx", 2)
    data = make(tmp_path / "other" / "m.onnx", 5).read_bytes()
    server = serve(tmp_path, watch=False)

    async def main() -> None:
        await server.service.load("m", {"file:1/model.onnx": data})
        await server.service.unload("n", {})
        await give_way()  # to what runs beside it
        await server.start()
        row = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0] * 4}
        reader, writer = await asyncio.open_connection(server.host, server.port)
        body = json.dumps({"inputs": [row]}).encode()
        for name in (b"m", b"n"):
            writer.write(
                b"POST /v2/models/%s/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (name, len(body))
            )
            writer.write(body)
        answer = await reader.readuntil(b"unloaded by a call")
        assert answer.startswith(b"HTTP/1.1 200") and b"[5.0,5.0,5.0,5.0]" in answer and b"HTTP/1.1 400" in answer
        writer.close()
        await server.stop()

    asyncio.run(main())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
