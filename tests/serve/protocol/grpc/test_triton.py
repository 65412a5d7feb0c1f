"""Triton's own gRPC clients, as they come, over both transports: every call that they have. docs/grpc.md lists them."""

from __future__ import annotations

import asyncio
import queue
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("tritonclient.grpc", exc_type=ImportError, reason="tritonclient is not installed")
aio = pytest.importorskip("tritonclient.grpc.aio", exc_type=ImportError, reason="tritonclient is not installed")
memory = pytest.importorskip("tritonclient.utils.shared_memory", exc_type=ImportError)
InferenceServerException = triton.InferenceServerException

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PAGE = Path(__file__).resolve().parents[4] / "docs" / "grpc.md"
X = np.ones((1, 64), np.float32)


@pytest.fixture
def client(grpc_server: Any) -> Iterator[Any]:
    made = triton.InferenceServerClient(f"127.0.0.1:{grpc_server.grpc_port}")
    yield made
    made.close()


@pytest.fixture
def along(grpc_server: Any) -> Callable[[Callable[[Any], Awaitable[None]]], None]:
    """Runs something with the asyncio client."""

    async def body(talk: Callable[[Any], Awaitable[None]]) -> None:
        async with aio.InferenceServerClient(f"127.0.0.1:{grpc_server.grpc_port}") as made:
            await asyncio.wait_for(talk(made), 120)

    return lambda talk: asyncio.run(body(talk))


def inputs(array: Any = X, kind: Any = triton.InferInput) -> list[Any]:
    made = kind("x", list(array.shape), "FP32")
    made.set_data_from_numpy(array)
    return [made]


def close_to(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(result.as_numpy("y"), expected, rtol=1e-4, atol=1e-4)


# ---- the client


def test_server(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata.name == "ox" and {"binary_tensor_data", "statistics"} <= set(metadata.extensions)


def test_model(client: Any) -> None:
    assert client.is_model_ready("mlp") and client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("nope") and not client.is_model_ready("mlp", "7")
    metadata = client.get_model_metadata("mlp")
    assert (metadata.name, list(metadata.versions), metadata.platform) == ("mlp", ["1"], "onnx_onnxv1")
    assert [(each.name, each.datatype, list(each.shape)) for each in metadata.inputs] == [("x", "FP32", [-1, 64])]
    config = client.get_model_config("mlp").config
    assert config.name == "mlp" and config.max_batch_size >= 1 and list(config.input[0].dims) == [64]
    assert config.input[0].data_type == 11  # TYPE_FP32
    with pytest.raises(InferenceServerException, match="there is no model 'nope'"):
        client.get_model_metadata("nope")
    with pytest.raises(InferenceServerException, match="there is no model 'nope'"):
        client.get_model_config("nope")


def test_statistics(client: Any) -> None:
    before = client.get_inference_statistics("mlp").model_stats[0].inference_stats.success.count
    client.infer("mlp", inputs())
    after = client.get_inference_statistics("mlp", "1").model_stats[0]
    assert after.inference_stats.success.count == before + 1 and after.inference_stats.compute_infer.ns > 0
    assert {each.name for each in client.get_inference_statistics().model_stats} >= {"mlp", "mixed"}
    with pytest.raises(InferenceServerException, match="there is no model 'nope'"):
        client.get_inference_statistics("nope")


@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_infer(client: Any, expected: Any, packed: str | None) -> None:
    rows = np.ones((32, 64), np.float32)
    result = client.infer("mlp", inputs(rows), "1", request_id="77", compression_algorithm=packed, priority=1)
    assert result.get_response().id == "77"
    close_to(result, expected(32))
    result = client.infer("mlp", inputs(), outputs=[triton.InferRequestedOutput("y", class_count=2)])
    assert re.fullmatch(rb"-?\d+\.\d+:\d", result.as_numpy("y")[0, 0])
    with pytest.raises(InferenceServerException, match=r"\[2, 63\]; expected \[batch, 64\]") as caught:
        client.infer("mlp", inputs(np.zeros((2, 63), np.float32)))
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_strings_and_flags(client: Any) -> None:
    arrays = {
        "text": ("BYTES", np.array([["zwölf", ""], ["a", "b"]], object)),
        "flags": ("BOOL", np.array([[True, False, True]] * 2)),
        "image": ("FP32", np.ones((2, 1, 2, 2), np.float32)),
    }
    entries = []
    for name, (datatype, array) in arrays.items():
        entry = triton.InferInput(name, list(array.shape), datatype)
        entry.set_data_from_numpy(array)
        entries.append(entry)
    result = client.infer("mixed", entries)
    assert [word.decode() for word in result.as_numpy("text_out").ravel()] == ["zwölf", "", "a", "b"]
    assert (result.as_numpy("flags_out") == ~arrays["flags"][1]).all()


def test_async_infer(client: Any, expected: Any) -> None:
    done: queue.Queue[Any] = queue.Queue()
    for _ in range(20):
        client.async_infer("mlp", inputs(), lambda result, error: done.put((result, error)))
    client.async_infer("nope", inputs(), lambda result, error: done.put((result, error)))
    got = [done.get(timeout=300) for _ in range(21)]
    (problem,) = [error for _, error in got if error is not None]
    assert "there is no model 'nope'" in str(problem)
    for result, error in got:
        if error is None:
            close_to(result, expected(1))


@pytest.mark.parametrize("packed", [None, "gzip"])
def test_stream(client: Any, expected: Any, packed: str | None) -> None:
    done: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: done.put((result, error)), compression_algorithm=packed)
    for n in range(30):
        client.async_stream_infer("mlp", inputs(), request_id=str(n), sequence_id=5, sequence_start=n == 0)
    client.async_stream_infer("nope", inputs(), request_id="bad")
    client.async_stream_infer("mlp", inputs(), request_id="last", enable_empty_final_response=True)
    got = [done.get(timeout=300) for _ in range(32)]
    client.stop_stream()
    assert "there is no model 'nope'" in str(got[30][1])
    assert [result.get_response().id for result, error in got if error is None] == [*map(str, range(30)), "last"]
    assert got[0][0].get_response().parameters["sequence_id"].int64_param == 5
    assert got[31][0].get_response().parameters["triton_final_response"].bool_param
    for result, error in got:
        if error is None:
            close_to(result, expected(1))


def test_repository(client: Any) -> None:
    index = {each.name: each for each in client.get_model_repository_index().models}
    assert {"mlp", "mixed", "brain"} <= index.keys() and index["mlp"].state == "READY"
    client.unload_model("brain")
    assert not client.is_model_ready("brain")
    with pytest.raises(InferenceServerException):
        client.infer("brain", inputs())
    client.load_model("brain")
    assert client.is_model_ready("brain")
    with pytest.raises(InferenceServerException, match="'nope'"):
        client.load_model("nope")


def test_a_model_that_comes_with_the_call(client: Any, mlp: Path, expected: Any) -> None:
    client.load_model("sent", config="{}", files={"file:1/model.onnx": mlp.read_bytes()})
    close_to(client.infer("sent", inputs()), expected(1))
    client.unload_model("sent", unload_dependents=True)
    assert not client.is_model_ready("sent")


def test_shared_memory(client: Any, expected: Any) -> None:
    into = memory.create_shared_memory_region("in", "/ox_test_grpc_in", X.nbytes)
    out = memory.create_shared_memory_region("out", "/ox_test_grpc_out", 40)
    try:
        memory.set_shared_memory_region(into, [X])
        client.register_system_shared_memory("in", "/ox_test_grpc_in", X.nbytes)
        client.register_system_shared_memory("out", "/ox_test_grpc_out", 40)
        assert set(client.get_system_shared_memory_status().regions) == {"in", "out"}
        assert client.get_system_shared_memory_status("in").regions["in"].byte_size == X.nbytes
        entry = triton.InferInput("x", [1, 64], "FP32")
        entry.set_shared_memory("in", X.nbytes)
        wanted = triton.InferRequestedOutput("y")
        wanted.set_shared_memory("out", 40)
        for _ in range(2):
            result = client.infer("mlp", [entry], outputs=[wanted])
            answer = result.get_output("y")
            assert answer.parameters["shared_memory_region"].string_param == "out"
            assert not result.get_response().raw_output_contents
            y = memory.get_contents_as_numpy(out, np.float32, [1, 10])
            np.testing.assert_allclose(y, expected(1), rtol=1e-4, atol=1e-4)
        client.unregister_system_shared_memory("in")
        with pytest.raises(InferenceServerException, match="there is no shared memory region 'in'"):
            client.infer("mlp", [entry], outputs=[wanted])
        client.unregister_system_shared_memory()
        assert not client.get_system_shared_memory_status().regions
        with pytest.raises(InferenceServerException, match="there is no shared memory '/ox_no_such'"):
            client.register_system_shared_memory("none", "/ox_no_such", 64)
    finally:
        memory.destroy_shared_memory_region(into)
        memory.destroy_shared_memory_region(out)


def test_memory_of_a_gpu(client: Any) -> None:
    assert not client.get_cuda_shared_memory_status().regions
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException, match="no CUDA shared memory") as caught:
        client.register_cuda_shared_memory("gpu", b"aGFuZGxl", 0, 64)
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


def test_trace_settings(client: Any) -> None:
    before = client.get_trace_settings().settings
    assert list(before["trace_level"].value)
    after = client.update_trace_settings("mlp", {"trace_rate": "7"}).settings
    assert (
        list(after["trace_rate"].value) == ["7"] == list(client.get_trace_settings("mlp").settings["trace_rate"].value)
    )
    assert client.get_trace_settings().settings == before
    cleared = client.update_trace_settings("mlp", {"trace_rate": None}).settings
    assert cleared["trace_rate"] == before["trace_rate"]
    with pytest.raises(InferenceServerException, match="'nope'"):
        client.get_trace_settings("nope")
    with pytest.raises(InferenceServerException, match="no_such"):
        client.update_trace_settings(settings={"no_such": "1"})


def test_log_settings(client: Any) -> None:
    before = client.get_log_settings().settings
    info = before["log_info"].bool_param
    after = client.update_log_settings({"log_verbose_level": 1, "log_info": not info}).settings
    assert after["log_verbose_level"].uint32_param == 1 and after["log_info"].bool_param is not info
    assert client.get_log_settings().settings["log_verbose_level"].uint32_param == 1
    client.update_log_settings({"log_verbose_level": 0, "log_info": info})
    assert client.get_log_settings().settings == before
    with pytest.raises(InferenceServerException, match="no_such"):
        client.update_log_settings({"no_such": True})


def test_headers_of_a_plugin(client: Any) -> None:
    """A plugin changes what is sent; here it adds a header, which must not matter."""
    auth = pytest.importorskip("tritonclient.grpc.auth")
    client.register_plugin(auth.BasicAuth("somebody", "secret"))
    assert client.plugin() is not None and client.is_server_live()
    client.unregister_plugin()


# ---- the asyncio client


def test_aio_calls(along: Any, expected: Any) -> None:
    async def talk(client: Any) -> None:
        assert await client.is_server_live() and await client.is_server_ready()
        assert await client.is_model_ready("mlp") and not await client.is_model_ready("nope")
        assert (await client.get_server_metadata()).name == "ox"
        assert (await client.get_model_metadata("mlp")).name == "mlp"
        assert (await client.get_model_config("mlp")).config.name == "mlp"
        assert (await client.get_inference_statistics("mlp")).model_stats[0].name == "mlp"
        assert "mlp" in {each.name for each in (await client.get_model_repository_index()).models}
        await client.unload_model("brain")
        await client.load_model("brain")
        assert not (await client.get_system_shared_memory_status()).regions
        with pytest.raises(InferenceServerException, match="/ox_no_such"):
            await client.register_system_shared_memory("none", "/ox_no_such", 64)
        await client.unregister_system_shared_memory()
        assert not (await client.get_cuda_shared_memory_status()).regions
        with pytest.raises(InferenceServerException, match="no CUDA shared memory"):
            await client.register_cuda_shared_memory("gpu", b"aGFuZGxl", 0, 64)
        await client.unregister_cuda_shared_memory()
        assert (await client.get_trace_settings()).settings and (await client.get_log_settings()).settings
        assert (await client.update_trace_settings("mlp", {"trace_rate": None})).settings
        assert (await client.update_log_settings({"log_info": True})).settings

    along(talk)


def test_aio_infer(along: Any, expected: Any) -> None:
    async def talk(client: Any) -> None:
        results = await asyncio.gather(
            *(client.infer("mlp", inputs(kind=aio.InferInput), request_id=str(n)) for n in range(50))
        )
        assert [result.get_response().id for result in results] == [str(n) for n in range(50)]
        for result in results:
            close_to(result, expected(1))
        with pytest.raises(InferenceServerException, match="there is no model 'nope'"):
            await client.infer("nope", inputs(kind=aio.InferInput))

    along(talk)


def test_aio_stream(along: Any, expected: Any) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for n in range(20):
            yield {"model_name": "mlp" if n != 7 else "nope", "inputs": inputs(), "request_id": str(n)}

    async def talk(client: Any) -> None:
        n = 0
        async for result, error in client.stream_infer(requests()):
            if n == 7:
                assert "there is no model 'nope'" in str(error)
            else:
                assert result.get_response().id == str(n)
                close_to(result, expected(1))
            n += 1
        assert n == 20

    along(talk)


# ---- the page


@pytest.mark.parametrize("kind", [triton.InferenceServerClient, aio.InferenceServerClient])
def test_the_page_lists_every_call(kind: Any) -> None:
    """Each public method of the clients has a row in docs/grpc.md, and each row's tests exist."""
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", PAGE.read_text(), re.M))
    missing = {name for name in dir(kind) if not name.startswith("_")} - rows.keys()
    assert not missing
    tests = {name for name in globals() if name.startswith("test_")}
    named = {name for cell in rows.values() for name in re.findall(r"test_\w+", cell)}
    assert named <= tests
