"""Triton's own HTTP clients, as they come: every call that they have. docs/protocol.md lists them."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

# The client pins older versions of shared packages, so not every environment has it.
triton = pytest.importorskip("tritonclient.http", exc_type=ImportError, reason="tritonclient is not installed")
aio = pytest.importorskip("tritonclient.http.aio", exc_type=ImportError, reason="tritonclient is not installed")
memory = pytest.importorskip("tritonclient.utils.shared_memory", exc_type=ImportError)
InferenceServerException = triton.InferenceServerException

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
ROOT = Path(__file__).resolve().parents[4]
X = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)


@pytest.fixture
def client(managed: Any) -> Iterator[Any]:
    made = triton.InferenceServerClient(f"127.0.0.1:{managed.port}")
    yield made
    made.close()


@pytest.fixture
def along(managed: Any) -> Callable[[Callable[[Any], Awaitable[None]]], None]:
    """Runs something with the asyncio client."""

    async def body(talk: Callable[[Any], Awaitable[None]]) -> None:
        async with aio.InferenceServerClient(f"127.0.0.1:{managed.port}") as made:
            await asyncio.wait_for(talk(made), 120)

    return lambda talk: asyncio.run(body(talk))


@pytest.fixture(scope="module")
def expected(mlp: Path) -> Any:
    return onnxruntime.InferenceSession(str(mlp), providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]


def inputs(array: Any = X, binary: bool = True) -> list[Any]:
    made = triton.InferInput("x", list(array.shape), "FP32")
    made.set_data_from_numpy(array, binary_data=binary)
    return [made]


def close_to(array: Any, expected: Any) -> None:
    np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-4)


# ---- the client


def test_server(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata["name"] == "ox" and {"binary_tensor_data", "statistics"} <= set(metadata["extensions"])


def test_model(client: Any) -> None:
    assert client.is_model_ready("mlp") and client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("nope") and not client.is_model_ready("mlp", "9")
    assert client.get_model_metadata("mlp")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}]
    config = client.get_model_config("mlp", "1")
    assert config["name"] == "mlp" and config["input"][0]["data_type"] == "TYPE_FP32"
    with pytest.raises(InferenceServerException, match="there is no model 'nope'") as caught:
        client.get_model_metadata("nope")
    assert caught.value.status() == "404"


def test_statistics(client: Any) -> None:
    before = client.get_inference_statistics("mlp")["model_stats"][0]
    client.infer("mlp", inputs())
    with pytest.raises(InferenceServerException):
        client.infer("mlp", inputs(X[:, :63]))
    (after,) = client.get_inference_statistics("mlp", "1")["model_stats"]
    assert after["inference_count"] - before["inference_count"] == 32
    assert after["execution_count"] - before["execution_count"] == 1
    assert after["last_inference"] >= before["last_inference"]
    for name in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
        gone = {
            key: after["inference_stats"][name][key] - before["inference_stats"][name][key] for key in ("count", "ns")
        }
        assert gone["count"] == 1 and gone["ns"] >= 0, name
    assert after["inference_stats"]["cache_hit"] == after["inference_stats"]["cache_miss"] == {"count": 0, "ns": 0}
    assert 32 in {batch["batch_size"] for batch in after["batch_stats"]}
    assert {each["name"] for each in client.get_inference_statistics()["model_stats"]} >= {"mlp", "mixed", "scores"}


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_infer(client: Any, expected: Any, binary_in: bool, binary_out: bool | None, packed: str | None) -> None:
    outputs = None if binary_out is None else [triton.InferRequestedOutput("y", binary_data=binary_out)]
    for number in range(3):  # the second and third are answered from what was remembered of the first
        result = client.infer(
            "mlp",
            inputs(binary=binary_in),
            request_id=str(number),
            outputs=outputs,
            request_compression_algorithm=packed,
            response_compression_algorithm=packed,
        )
        assert result.get_response()["id"] == str(number)
        close_to(result.as_numpy("y"), expected)


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
    waiting = [client.async_infer("mlp", inputs(), request_id=str(n)) for n in range(10)]
    for number, each in enumerate(waiting):
        result = each.get_result()
        assert result.get_response()["id"] == str(number)
        close_to(result.as_numpy("y"), expected)


def test_bodies_by_hand(client: Any, managed: Any, connect: Any, expected: Any) -> None:
    """What the client writes for others to send, and what it reads of what others got."""
    body, length = client.generate_request_body(inputs(), request_id="by hand")
    with connect(managed) as raw:
        header = {"inference-header-content-length": str(length)}
        status, headers, reply = raw.ask("POST", "/v2/models/mlp/infer", body, header)
    assert status == 200
    result = client.parse_response_body(reply, header_length=int(headers["inference-header-content-length"]))
    assert result.get_response()["id"] == "by hand"
    close_to(result.as_numpy("y"), expected)


def test_classification(client: Any) -> None:
    rows = np.array([[0.25, -1, 2, 0], [3, 1, 2, 0]], np.float32)
    for binary in (True, False):
        asked = [triton.InferRequestedOutput("y", binary_data=binary, class_count=2)]
        answer = client.infer("scores", inputs(rows), outputs=asked).as_numpy("y")
        got = [[word.decode() if isinstance(word, bytes) else str(word) for word in row] for row in answer]
        assert got == [["2.000000:2:<owl>", "0.250000:0:cat"], ["3.000000:0:cat", "2.000000:2:<owl>"]]


def test_sequences_and_parameters(client: Any) -> None:
    for identifier in (7, "seven"):
        result = client.infer("scores", inputs(X[:1, :4]), sequence_id=identifier, sequence_start=True)
        sequence = {"sequence_id": identifier, "sequence_start": True, "sequence_end": False}
        assert result.get_response()["parameters"] == sequence
    result = client.infer("mlp", inputs(), priority=2, timeout=5_000_000, parameters={"mine": 1.5, "yours": "x"})
    assert "parameters" not in result.get_response()
    with pytest.raises(InferenceServerException, match="'priority' is wrong; expected a whole number"):
        client.infer("mlp", inputs(), priority=-1)


def test_repository(client: Any) -> None:
    index = {entry["name"]: entry for entry in client.get_model_repository_index()}
    assert index["mlp"]["version"] == "1" and index["mlp"]["state"] == "READY"
    client.unload_model("mixed", unload_dependents=True)
    assert not client.is_model_ready("mixed") and client.is_model_ready("mlp")
    states = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    assert states["mixed"] in ("UNLOADING", "UNAVAILABLE")  # it may still be answering others
    client.load_model("mixed")
    assert client.is_model_ready("mixed")
    with pytest.raises(InferenceServerException, match="nope"):
        client.load_model("nope")


def test_a_model_that_comes_with_the_call(client: Any, mlp: Path, expected: Any) -> None:
    client.load_model("brought", config="{}", files={"file:1/model.onnx": mlp.read_bytes()})
    close_to(client.infer("brought", inputs()).as_numpy("y"), expected)
    client.unload_model("brought")
    with pytest.raises(InferenceServerException, match="base64"):
        raise_for(client._post("v2/repository/models/brought/load", LOAD, None, None))


LOAD = '{"parameters": {"config": "{}", "file:1/model.onnx": "?"}}'


def raise_for(response: Any) -> None:
    from tritonclient.http._utils import _raise_if_error

    _raise_if_error(response)


def test_shared_memory(client: Any, expected: Any) -> None:
    into = memory.create_shared_memory_region("in", "/ox_test_in", X.nbytes)
    out = memory.create_shared_memory_region("out", "/ox_test_out", expected.nbytes + 64)
    try:
        memory.set_shared_memory_region(into, [X])
        client.register_system_shared_memory("in", "/ox_test_in", X.nbytes)
        client.register_system_shared_memory("out", "/ox_test_out", expected.nbytes + 64)
        assert {each["name"] for each in client.get_system_shared_memory_status()} == {"in", "out"}
        assert client.get_system_shared_memory_status("in") == [
            {"name": "in", "key": "/ox_test_in", "offset": 0, "byte_size": X.nbytes}
        ]
        entry = triton.InferInput("x", [32, 64], "FP32")
        entry.set_shared_memory("in", X.nbytes)
        asked = triton.InferRequestedOutput("y")
        asked.set_shared_memory("out", expected.nbytes, offset=64)
        for _ in range(3):
            output = client.infer("mlp", [entry], outputs=[asked]).get_output("y")
            assert "data" not in output
            assert output["parameters"] == {
                "shared_memory_region": "out",
                "shared_memory_byte_size": expected.nbytes,
                "shared_memory_offset": 64,
            }
            close_to(memory.get_contents_as_numpy(out, np.float32, output["shape"], offset=64), expected)
        close_to(client.infer("mlp", [entry]).as_numpy("y"), expected)  # in by memory, out by the socket
        asked.set_shared_memory("out", expected.nbytes - 1)
        with pytest.raises(InferenceServerException, match="too small; expected shared_memory_byte_size of at least"):
            client.infer("mlp", [entry], outputs=[asked])
        client.unregister_system_shared_memory("in")
        with pytest.raises(InferenceServerException, match="no shared memory region 'in'"):
            client.infer("mlp", [entry])
        client.unregister_system_shared_memory()
        assert client.get_system_shared_memory_status() == []
    finally:
        memory.destroy_shared_memory_region(into)
        memory.destroy_shared_memory_region(out)


def test_memory_of_a_gpu(client: Any) -> None:
    assert client.get_cuda_shared_memory_status() == []
    client.unregister_cuda_shared_memory()
    client.unregister_cuda_shared_memory("gpu")
    with pytest.raises(InferenceServerException, match="no CUDA shared memory") as caught:
        client.register_cuda_shared_memory("gpu", base64.b64encode(b"handle").decode(), 0, 64)
    assert caught.value.status() == "501"
    with pytest.raises(InferenceServerException, match="no CUDA shared memory"):
        client.get_cuda_shared_memory_status("gpu")


def test_trace_settings(client: Any) -> None:
    before = client.get_trace_settings()
    assert before["trace_level"] == ["OFF"] and before["trace_rate"] == "1"
    after = client.update_trace_settings("mlp", {"trace_rate": "7", "trace_count": 5})
    assert after == before | {"trace_rate": "7", "trace_count": "5"} == client.get_trace_settings("mlp")
    assert client.get_trace_settings() == before
    assert client.update_trace_settings("mlp", {"trace_rate": None})["trace_rate"] == "1"
    assert client.update_trace_settings("mlp", {}) == before
    with pytest.raises(InferenceServerException, match="tracing is not enabled"):
        client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})


def test_log_settings(client: Any) -> None:
    before = client.get_log_settings()
    assert set(before) == {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"}
    after = client.update_log_settings({"log_verbose_level": 1, "log_warning": False})
    assert after == before | {"log_verbose_level": 1, "log_warning": False} == client.get_log_settings()
    assert client.update_log_settings(before) == before
    with pytest.raises(InferenceServerException, match="no log setting 'log_poem'"):
        client.update_log_settings({"log_poem": True})


def test_headers_of_a_plugin(client: Any) -> None:
    """A plugin changes what is sent; here it adds a header, which must not matter."""
    auth = pytest.importorskip("tritonclient.http.auth")
    client.register_plugin(auth.BasicAuth("somebody", "secret"))
    assert client.plugin() is not None and client.is_server_live()
    client.unregister_plugin()


def test_errors_arrive(client: Any) -> None:
    with pytest.raises(InferenceServerException, match=r"\[32, 63\]; expected \[batch, 64\]") as caught:
        client.infer("mlp", inputs(X[:, :63]))
    assert caught.value.status() == "400"


def test_close(managed: Any) -> None:
    made = triton.InferenceServerClient(f"127.0.0.1:{managed.port}")
    assert made.is_server_live()
    made.close()


# ---- the asyncio client


def test_aio_calls(along: Any, shared: Any) -> None:
    key = shared(bytes(64))

    async def talk(client: Any) -> None:
        assert await client.is_server_live() and await client.is_server_ready()
        assert await client.is_model_ready("mlp") and not await client.is_model_ready("nope")
        assert (await client.get_server_metadata())["name"] == "ox"
        assert (await client.get_model_metadata("mlp"))["name"] == "mlp"
        assert (await client.get_model_config("mlp"))["name"] == "mlp"
        assert len((await client.get_inference_statistics())["model_stats"]) >= 3  # long enough to be packed
        assert "mlp" in {each["name"] for each in await client.get_model_repository_index()}
        await client.unload_model("mixed")
        await client.load_model("mixed")
        await client.register_system_shared_memory("mine", key, 32, offset=32)
        assert (await client.get_system_shared_memory_status("mine"))[0]["offset"] == 32
        await client.unregister_system_shared_memory("mine")
        assert await client.get_system_shared_memory_status() == await client.get_cuda_shared_memory_status() == []
        with pytest.raises(InferenceServerException, match="no CUDA shared memory"):
            await client.register_cuda_shared_memory("gpu", "aGFuZGxl", 0, 64)
        await client.unregister_cuda_shared_memory()
        assert await client.get_trace_settings() == await client.update_trace_settings(settings={"trace_count": "-1"})
        assert await client.get_log_settings() == await client.update_log_settings({"log_file": ""})

    along(talk)


@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_aio_infer(along: Any, expected: Any, packed: str | None) -> None:
    async def talk(client: Any) -> None:
        results = await asyncio.gather(
            *(
                client.infer(
                    "mlp",
                    inputs(),
                    request_id=str(n),
                    request_compression_algorithm=packed,
                    response_compression_algorithm=packed,
                )
                for n in range(20)
            )
        )
        assert [result.get_response()["id"] for result in results] == [str(n) for n in range(20)]
        for result in results:
            close_to(result.as_numpy("y"), expected)
        with pytest.raises(InferenceServerException, match="there is no model 'nope'"):
            await client.infer("nope", inputs())

    along(talk)


def test_aio_by_hand(along: Any, expected: Any) -> None:
    async def talk(client: Any) -> None:
        body, length = client.generate_request_body(inputs())
        headers = {"Inference-Header-Content-Length": str(length)}
        response = await client._post("v2/models/mlp/infer", body, headers, None)
        split = int(response.headers["Inference-Header-Content-Length"])
        packed = response.headers.get("Content-Encoding")  # aiohttp asks for it
        result = client.parse_response_body(await response.read(), header_length=split, content_encoding=packed)
        close_to(result.as_numpy("y"), expected)

    along(talk)


# ---- the page


def rows() -> dict[str, list[str]]:
    """The cells of the table of calls in docs/protocol.md, by the call. The page has other tables."""
    page = (ROOT / "docs" / "protocol.md").read_text().partition("\n## Methods of Triton's clients\n")[2]
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", page.partition("\n## ")[0], re.M)
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in found}


def public(kind: Any) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def check_tests(cell: str, folder: str) -> None:
    """A cell names tests of a file that exist, or says why there are none."""
    text = (ROOT / "tests" / "serve" / "protocol" / folder / "test_triton.py").read_text()
    names = re.findall(r"test_\w+", cell)
    assert names or cell == "not in this client", cell
    for name in names:
        assert f"def {name}(" in text, name


def test_the_page_lists_every_call_over_http() -> None:
    table = rows()
    calls = public(triton.InferenceServerClient) | public(aio.InferenceServerClient)
    assert calls <= table.keys()
    for name, cells in table.items():
        check_tests(cells[1], "rest")
        assert (cells[1] == "not in this client") == (name not in calls)


def test_the_page_lists_every_call_over_grpc() -> None:
    grpc = pytest.importorskip("tritonclient.grpc", exc_type=ImportError)
    grpc_aio = pytest.importorskip("tritonclient.grpc.aio", exc_type=ImportError)
    table = rows()
    calls = public(grpc.InferenceServerClient) | public(grpc_aio.InferenceServerClient)
    assert table.keys() == calls | public(triton.InferenceServerClient) | public(aio.InferenceServerClient)
    for name, cells in table.items():
        check_tests(cells[2], "grpc")
        assert (cells[2] == "not in this client") == (name not in calls)
