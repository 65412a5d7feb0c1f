"""Models that change under a running server."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ox.errors import LoadError
from ox.graph.contract import Contract, Sample
from ox.serve import ModelConfig
from ox.serve.repository.watchdog import Watchdog


def test_a_file_that_is_replaced(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m.onnx", 1)
    with serve(path) as server:
        client = caller(server)
        assert client.infer("m") == (200, (1, 1.0))
        make(path, 2)
        eventually(lambda: client.infer("m") == (200, (1, 2.0)))


def test_a_file_that_is_written_in_place(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    """Requests never see half a file. (That it is not even looked at until it has rested: test_model_manager.py.)"""
    path, whole = make(tmp_path / "m.onnx", 1), make(tmp_path / "other" / "m.onnx", 2).read_bytes()
    with serve(path) as server:
        client = caller(server)
        with open(path, "wb") as file:
            for byte in range(0, len(whole), 40):
                file.write(whole[byte : byte + 40])
                file.flush()
                assert client.infer("m")[0] == 200
        eventually(lambda: client.infer("m") == (200, (1, 2.0)))
        eventually(lambda: client.index() == {"1": ("READY", "")})


def test_versions_come_and_go(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    make(tmp_path / "m" / "1" / "model.onnx", 1)
    with serve(tmp_path) as server:
        client = caller(server)
        make(tmp_path / "m" / "2" / "model.onnx", 2)
        eventually(lambda: client.infer("m") == (200, (2, 2.0)))
        status, error = eventually(lambda: client.infer("m/versions/1"))
        assert status == 400 and "not among the versions to serve" in error
        make(tmp_path / "m" / "10" / "model.onnx", 10)
        eventually(lambda: client.infer("m") == (200, (10, 10.0)))
        shutil.rmtree(tmp_path / "m" / "10")
        eventually(lambda: client.infer("m") == (200, (2, 2.0)))
        make(tmp_path / "n.onnx", 7)
        eventually(lambda: client.infer("n") == (200, (1, 7.0)))
        (tmp_path / "n.onnx").unlink()
        eventually(lambda: client.infer("n")[0] == 404)
        eventually(lambda: client.index("n") == {})
        shutil.rmtree(tmp_path / "m")
        eventually(lambda: client.infer("m")[0] == 404)
        assert client.ask("/v2/health/ready")[0] == 200


def test_a_failure_keeps_what_runs(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m" / "1" / "model.onnx", 1)
    with serve(tmp_path) as server:
        client = caller(server)
        path.write_bytes(b"no model")
        reason = eventually(lambda: client.index("m")["1"][1])
        assert "keeps serving" in reason and "not an ONNX file" in reason and client.index("m")["1"][0] == "READY"
        assert client.infer("m") == (200, (1, 1.0))
        make(path, 2, operator="Frobnicate")
        eventually(lambda: "Frobnicate" in client.index("m")["1"][1])
        make(tmp_path / "m" / "2" / "model.onnx", 2, operator="Frobnicate")
        eventually(lambda: client.index("m").get("2", ("", ""))[0] == "UNAVAILABLE")
        assert client.infer("m") == (200, (1, 1.0))
        assert server.model_manager.loads["m", "failed"] == 3
        make(tmp_path / "m" / "2" / "model.onnx", 2)
        eventually(lambda: client.infer("m") == (200, (2, 2.0)))
        eventually(lambda: client.index("m")["2"] == ("READY", ""))
        make(path, 1)
        make(tmp_path / "m" / "2" / "model.onnx", 3, operator="Frobnicate")
        eventually(lambda: "keeps serving" in client.index("m")["2"][1])
        assert client.infer("m") == (200, (2, 2.0))  # rather than the file of version 1
        make(tmp_path / "m" / "3" / "model.onnx", 3, operator="Frobnicate")
        eventually(lambda: "3" in client.index("m"))
        shutil.rmtree(tmp_path / "m" / "3")
        eventually(lambda: "3" not in client.index("m"))
        assert client.infer("m") == (200, (2, 2.0))


def test_what_was_put_back_has_not_failed(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    path, aside = make(tmp_path / "m.onnx", 1), tmp_path / "aside"
    with serve(path) as server:
        client = caller(server)
        os.link(path, aside)
        (tmp_path / "bad").write_bytes(b"no model")
        os.replace(tmp_path / "bad", path)
        eventually(lambda: client.index()["1"][1])
        os.replace(aside, path)
        eventually(lambda: client.index()["1"] == ("READY", ""))
        assert server.model_manager.loads == {("m", "loaded"): 1, ("m", "failed"): 1}


def test_links_that_are_turned(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    """As volumes of Kubernetes and `ln -sfn` replace many files at once."""
    for value in (1, 2):
        make(tmp_path / "models" / f"..{value}" / "model.onnx", value)
    version = tmp_path / "models" / "m" / "1"
    version.mkdir(parents=True)
    (tmp_path / "models" / "..data").symlink_to("..1")
    (version / "model.onnx").symlink_to("../../..data/model.onnx")
    with serve(tmp_path / "models") as server:
        client = caller(server)
        assert client.infer("m") == (200, (1, 1.0))
        (tmp_path / "turned").symlink_to("..2")
        os.replace(tmp_path / "turned", tmp_path / "models" / "..data")
        eventually(lambda: client.infer("m") == (200, (1, 2.0)))


def test_golden_samples_are_tried_first(
    build: Any, make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path
) -> None:
    path = make(tmp_path / "m.onnx", 1)
    row = np.ones((1, 4), np.float32)
    ends: tuple[Any, Any] = ({"x": (1, ["batch", 4])}, {"y": (1, ["batch", 4])})
    liar = Contract(samples=(Sample({"x": row}, {"y": row + 5}),))
    folder = tmp_path / "new"
    folder.mkdir()
    with serve(path) as server:
        client = caller(server)
        os.replace(build("m", [("Identity", ["x"], ["y"], {})], *ends, contract=liar, folder=folder), path)
        assert "golden outputs" in eventually(lambda: client.index()["1"][1])
        assert client.infer("m") == (200, (1, 1.0))


def test_a_folder_that_is_gone_changes_nothing(
    make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system that is away for a while is no reason to unload everything."""
    make(tmp_path / "all" / "m.onnx", 1)
    with serve(tmp_path / "all") as server:
        os.rename(tmp_path / "all", tmp_path / "away")
        eventually(lambda: "cannot be listed" in caplog.text)
        assert caller(server).infer("m") == (200, (1, 1.0))
        os.rename(tmp_path / "away", tmp_path / "all")
        make(tmp_path / "all" / "m.onnx", 2)
        eventually(lambda: caller(server).infer("m") == (200, (1, 2.0)))
        assert caplog.text.count("cannot be listed") == 1


def test_a_load_that_is_cancelled_once_it_is_done(
    make: Any, serve: Any, caller: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the end of its thread and the event loop, which does not take the model then; the next load does."""
    path = make(tmp_path / "m.onnx", 1)
    with serve(tmp_path, watch=False, manage=True) as server:
        client, steps = caller(server), server.model_manager._steps
        real = Watchdog.run

        def run(self: Watchdog[Any], call: Any, control: Any) -> Any:
            model = real(self, call, control)
            steps.cancel("m", "its files have changed")
            return model

        make(path, 2)
        with monkeypatch.context() as patch:
            patch.setattr(Watchdog, "run", run)
            status, error = client.ask("/v2/repository/models/m/load", {})
        assert status == 400 and "was ended" in error
        assert client.infer("m") == (200, (1, 1.0)) and client.index("m") == {"1": ("READY", "")}
        assert client.ask("/v2/repository/models/m/load", {})[0] == 200
        assert client.infer("m") == (200, (1, 2.0))


def test_without_watching(make: Any, serve: Any, caller: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m.onnx", 1)
    others = set(threading.enumerate())  # of servers that serve several tests
    with serve(path, watch=False) as server:
        make(path, 2)
        assert not any(thread.name == "ox-watch" for thread in set(threading.enumerate()) - others)
        assert caller(server).infer("m") == (200, (1, 1.0))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options", [ModelConfig("cpu"), ModelConfig("cpu", max_wait_ms=1, instances=2)], ids=["here", "queue"]
)
def test_not_one_request_is_lost_or_mixed(
    make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path, options: ModelConfig
) -> None:
    """The file is replaced twenty times under load; every answer is whole and of one model."""
    path = make(tmp_path / "m.onnx", 0)
    seen: Counter[Any] = Counter()
    over = threading.Event()
    with serve(path, options=options) as server:

        def hammer(rows: int) -> None:
            client = caller(server)
            while not over.is_set():
                seen[client.infer("m", rows)] += 1

        threads = [threading.Thread(target=hammer, args=(rows,)) for rows in (1, 3, 8, 20)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: seen[200, (1, 0.0)])
            for value in range(1, 21):
                make(path, value)
                eventually(lambda value=value: seen[200, (1, float(value))])
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert set(seen) == {(200, (1, float(value))) for value in range(21)}
        assert server.model_manager.loads == {("m", "loaded"): 21}
        eventually(lambda: sum(thread.name.startswith("ox-drain") for thread in threading.enumerate()) == 0)


def test_what_is_replaced_is_freed(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    """At once, not when a collection comes by."""
    path = make(tmp_path / "m.onnx", 1)
    with serve(path) as server:
        client = caller(server)
        gc.collect()
        gc.disable()
        try:
            gone = [weakref.ref(server.models[0].engine), weakref.ref(server.models[0].batcher)]
            assert client.infer("m")[0] == 200
            make(path, 2)
            eventually(lambda: client.infer("m") == (200, (1, 2.0)))
            eventually(lambda: [ref() for ref in gone] == [None, None])
        finally:
            gc.enable()


def test_counting_goes_on(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m.onnx", 1)
    with serve(path) as server:
        client = caller(server)
        client.infer("m")
        stages = server.models[0].stages
        make(path, 2)
        eventually(lambda: client.infer("m") == (200, (1, 2.0)))
        assert server.models[0].stages is stages and stages.request.count > 1


def test_a_server_of_nothing_that_works(serve: Any, make: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(LoadError, match="not an ONNX file"):
        serve(tmp_path)
    make(tmp_path / "n.onnx", 1)
    server = serve(tmp_path)
    assert [model.name for model in server.models] == ["n"]
    with pytest.raises(LoadError, match="not an ONNX file"):
        serve(tmp_path / "m.onnx", tmp_path / "n.onnx")


def test_an_empty_folder_fills(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no model in"):
        serve(tmp_path, watch=False)
    with serve(tmp_path) as server:
        make(tmp_path / "m.onnx", 1)
        eventually(lambda: caller(server).infer("m") == (200, (1, 1.0)))
