"""Triton's own client against the server: it writes the requests that most of the protocol's users send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

# The client pins older versions of shared packages, so not every environment has it.
triton = pytest.importorskip("tritonclient.http", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def triton_client(server: Any) -> Any:
    client = triton.InferenceServerClient(f"{server.host}:{server.port}")
    yield client
    client.close()


def test_health_and_metadata(triton_client: Any) -> None:
    assert triton_client.is_server_live() and triton_client.is_server_ready()
    assert triton_client.is_model_ready("mlp") and triton_client.is_model_ready("mlp", "1")
    assert not triton_client.is_model_ready("nope")
    assert "binary_tensor_data" in triton_client.get_server_metadata()["extensions"]
    assert triton_client.get_model_metadata("mlp")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_infer(triton_client: Any, mlp: Any, binary_in: bool, binary_out: bool | None, packed: str | None) -> None:
    import onnxruntime

    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    entry = triton.InferInput("x", list(x.shape), "FP32")
    entry.set_data_from_numpy(x, binary_data=binary_in)
    outputs = None if binary_out is None else [triton.InferRequestedOutput("y", binary_data=binary_out)]
    result = triton_client.infer(
        "mlp",
        [entry],
        request_id="77",
        outputs=outputs,
        request_compression_algorithm=packed,
        response_compression_algorithm=packed,
    )
    expected = onnxruntime.InferenceSession(str(mlp), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert result.get_response()["id"] == "77"
    np.testing.assert_allclose(result.as_numpy("y"), expected, rtol=1e-4, atol=1e-4)


def test_strings_and_flags(triton_client: Any) -> None:
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
    result = triton_client.infer("mixed", entries)
    assert [word.decode() for word in result.as_numpy("text_out").ravel()] == ["zwölf", "", "a", "b"]
    assert (result.as_numpy("flags_out") == ~arrays["flags"][1]).all()


def test_errors_arrive(triton_client: Any) -> None:
    entry = triton.InferInput("x", [2, 63], "FP32")
    entry.set_data_from_numpy(np.zeros((2, 63), np.float32))
    with pytest.raises(triton.InferenceServerException, match=r"\[2, 63\]; expected \[batch, 64\]"):
        triton_client.infer("mlp", [entry])
