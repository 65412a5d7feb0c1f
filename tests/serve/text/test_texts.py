"""Texts over the V2 protocol: HTTP, gRPC, classes, limits, hostile texts."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from ox.serve import ModelConfig, Server
from ox.serve.repository import model as model_module
from ox.serve.text.text_tensors import TextTensors

TEXTS = ["In the beginning", "And God said, Let there be light", "Selah", "The LORD is my shepherd; I shall not want"]
LONG = "And God said " * 12  # more than the model's 24 tokens
Post = Callable[..., tuple[int, Any]]


def infer(post: Post, model: str, texts: Any, parameters: Any = None, **more: Any) -> tuple[int, Any]:
    inputs = [{"name": "text", "shape": [len(texts), 1], "datatype": "BYTES", "data": texts}]
    for name, values in more.items():
        inputs.append({"name": name, "shape": [len(values), 1], "datatype": "BYTES", "data": values})
    return post(f"/v2/models/{model}/infer", {"inputs": inputs, "parameters": parameters or {}})


def rows(answer: Any) -> np.ndarray[Any, Any]:
    (output,) = answer["outputs"]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def test_a_text_gives_its_vector(post: Post, vector: Any) -> None:
    status, answer = infer(post, "sentences", TEXTS)
    assert (status, answer["outputs"][0]["name"]) == (200, "embedding")
    assert np.allclose(rows(answer), [vector(text) for text in TEXTS], atol=1e-6)


def test_many_texts_of_all_lengths(post: Post, vector: Any) -> None:
    texts = [" ".join(["light"] * (1 + i * 7 % 20)) + f" {i}" for i in range(60)]
    status, answer = infer(post, "sentences", texts)
    assert status == 200
    assert np.allclose(rows(answer), [vector(text) for text in texts], atol=1e-6)


def test_a_model_that_sees_padding_gives_what_a_text_gives_alone(
    post: Post, server: Server, pieces: Any, table: Any
) -> None:
    model = server.service.repository.find("unmasked")
    assert model.padded.refusal is not None and "differs by" in model.padded.refusal
    assert "padding off" in model.describe()
    status, answer = infer(post, "unmasked", TEXTS)
    assert status == 200
    assert np.allclose(rows(answer), [table[pieces.encode(text).ids].mean(0) for text in TEXTS], atol=1e-5)


def test_padding_is_proven(server: Server) -> None:
    for name in ("sentences", "classes", "pairs"):
        assert server.service.repository.find(name).padded.refusal is None


def test_padding_is_proven_once(sentences: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs: list[str | None] = []
    real = model_module.padding_difference
    monkeypatch.setattr(model_module, "padding_difference", lambda *ends: proofs.append(real(*ends)) or proofs[-1])
    with Server([sentences], options=ModelConfig("cpu", instances=1, max_rows=8)):
        assert proofs == [None]


def test_classes_have_their_names(post: Post, pieces: Any, table: Any) -> None:
    sums = table[pieces.encode(TEXTS[1]).ids].sum(0)[:3]
    wanted = ["law", "letters", "neither"][int(sums.argmax())]
    text = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": TEXTS[1:2]}
    top = [{"name": "logits", "parameters": {"classification": 1}}]
    status, answer = post("/v2/models/classes/infer", {"inputs": [text], "outputs": top})
    assert status == 200
    assert answer["outputs"][0]["data"][0].split(":")[2] == wanted


def test_two_texts_are_read_together(post: Post, pieces: Any) -> None:
    status, answer = infer(post, "pairs", ["God", "God"], text_pair=["light", "light and darkness"])
    assert status == 200
    counts = [len(pieces.encode("God", pair).type_ids) for pair in ("light", "light and darkness")]
    first = sum(pieces.encode("God", "light").type_ids), sum(pieces.encode("God", "light and darkness").type_ids)
    assert counts[0] < counts[1] and first[0] < first[1]
    assert np.allclose(rows(answer)[:, 0], np.array(first) / 10)
    status, answer = infer(post, "pairs", ["God"])
    assert (status, rows(answer)[0, 0]) == (200, 0)


def test_a_long_text_is_refused_or_cut(post: Post, vector: Any, pieces: Any) -> None:
    status, answer = infer(post, "sentences", ["Selah", LONG])
    assert status == 400
    assert "at most 24 tokens" in answer["error"] and "text 1 of 2" in answer["error"] and "truncate" in answer["error"]
    status, answer = infer(post, "sentences", [LONG], {"truncate": True})
    assert status == 200
    pieces.enable_truncation(24)
    try:
        assert np.allclose(rows(answer)[0], vector(LONG), atol=1e-6)
    finally:
        pieces.no_truncation()
    status, answer = infer(post, "sentences", [LONG], {"truncate": "yes"})
    assert (status, "truncate" in answer["error"]) == (400, True)


def test_texts_that_take_long_are_encoded_in_a_thread(post: Post, vector: Any) -> None:
    status, answer = infer(post, "sentences", ["word " * 3000, "Selah"])
    assert (status, "text 0 of 2" in answer["error"]) == (400, True)
    status, answer = infer(post, "sentences", [*["Selah"] * 600, "light"])
    assert status == 200
    assert np.allclose(rows(answer)[-2:], [vector("Selah"), vector("light")], atol=1e-6)


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"a\xc3("])
def test_bytes_that_are_no_text(server: Server, raw: bytes) -> None:
    data = struct.pack("<I", len(raw)) + raw
    tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [tensor]}).encode()
    request = Request(f"{server.url}/v2/models/sentences/infer", head + data)
    request.add_header("Inference-Header-Content-Length", str(len(head)))
    request.add_header("content-type", "application/octet-stream")
    with pytest.raises(HTTPError) as caught:
        urlopen(request, timeout=60)
    assert caught.value.code == 400
    assert b"can't decode byte" in caught.value.read()


def test_no_texts(post: Post) -> None:
    status, answer = infer(post, "sentences", [])
    assert (status, "no rows" in answer["error"]) == (400, True)
    assert infer(post, "sentences", [""])[0] == 200  # this tokenizer puts two tokens around each text


def test_over_grpc(server: Server, vector: Any) -> None:
    grpcclient = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
    client = grpcclient.InferenceServerClient(server.url.removeprefix("http://"))
    given = grpcclient.InferInput("text", [2, 1], "BYTES")
    given.set_data_from_numpy(np.array([[text.encode()] for text in TEXTS[:2]], object))
    found = client.infer("sentences", [given]).as_numpy("embedding")
    assert np.allclose(found, [vector(text) for text in TEXTS[:2]], atol=1e-6)


def test_long_texts_over_grpc_are_encoded_in_a_thread(
    server: Server, vector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grpcclient = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
    threads: list[str] = []
    encode = TextTensors.encode

    def watched(tensors: TextTensors, *arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return encode(tensors, *arguments)

    monkeypatch.setattr(TextTensors, "encode", watched)
    client = grpcclient.InferenceServerClient(server.url.removeprefix("http://"))
    for count in (1, 600):
        given = grpcclient.InferInput("text", [count, 1], "BYTES")
        given.set_data_from_numpy(np.array([[b"Selah"]] * count, object))
        found = client.infer("sentences", [given]).as_numpy("embedding")
        assert np.allclose(found[-1], vector("Selah"), atol=1e-6)
    assert threads[0] != "ox-tokenizer" and threads[1] == "ox-tokenizer"


def test_what_clients_see(post: Post, server: Server) -> None:
    with urlopen(f"{server.url}/v2/models/pairs", timeout=60) as reply:
        text = reply.read().decode()
    assert '"text_pair"' in text and "input_ids" not in text
    said = server.service.repository.find("sentences").describe()
    assert "texts to vectors, mean pooling, normalized, up to 24 tokens" in said
