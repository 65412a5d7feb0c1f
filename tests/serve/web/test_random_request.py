"""Random requests for the page: a model takes every one that is offered, and what it cannot take is not offered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox.graph.contract import Contract, Sample
from ox.serve import ModelConfig, Server
from ox.serve.web import random_request

FLOAT, INT, BF16, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BFLOAT16, TensorProto.STRING
TOML = """
[models.counter.sequence]
state = {s = "t"}
[models.limited]
max_dims = {tokens = 4}
"""
CONTROL = "control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_KIND }"
SEQUENCE = f"sequence_batching {{ control_input {{ name: 'C' {CONTROL} }} }}"
PBTXT = {name: SEQUENCE.replace("KIND", kind) for name, kind in (("number", "INT32"), ("word", "STRING"))}
PBTXT["reshaped"] = "max_batch_size: 4 input { name: 'x' data_type: TYPE_FP32 dims: [2, 2] reshape { shape: [4] } }"


@pytest.fixture(scope="module")
def models(build: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("models")

    def write(name: str, nodes: Any, inputs: Any, outputs: Any, weights: Any = None, **more: Any) -> None:
        (folder / name / "1").mkdir(parents=True)
        build(name, nodes, inputs, outputs, weights, folder=folder / name / "1", **more)
        (folder / name / "1" / f"{name}.onnx").rename(folder / name / "1" / "model.onnx")
        if name in PBTXT:
            (folder / name / "config.pbtxt").write_text(PBTXT[name])

    row = {"x": (FLOAT, ["batch", 4])}
    write("counter", [("Add", ["x", "s"], ["t"], {}), ("Identity", ["t"], ["y"], {})],
          {**row, "s": (FLOAT, ["batch", 4])}, {"y": row["x"], "t": row["x"]})  # fmt: skip
    for name, kind in (("number", TensorProto.INT32), ("word", STRING)):
        ends = {**row, "C": (kind, ["batch", 1])}
        write(
            name, [("Neg", ["x"], ["y"], {}), ("Identity", ["C"], ["id"], {})], ends, {"y": row["x"], "id": ends["C"]}
        )
    half = {"x": (BF16, ["batch", 3])}
    write("half", [("Identity", ["x"], ["y"], {})], half, {"y": half["x"]})
    window = {"w": np.ones((1, 1, 16), np.float32)}
    write(
        "wide",
        [("Conv", ["x", "w"], ["y"], {})],
        {"x": (FLOAT, ["batch", 1, "n"])},
        {"y": (FLOAT, ["batch", 1, "m"])},
        window,
    )
    pair = {name: (FLOAT, ["batch", "n"]) for name in ("a", "b")}
    write("pair", [("Add", ["a", "b"], ["y"], {})], pair, {"y": pair["a"]})
    words = {"x": (STRING, ["batch", 2]), "f": (TensorProto.BOOL, [])}
    write(
        "words", [("Identity", ["x"], ["y"], {}), ("Not", ["f"], ["g"], {})], words, {"y": words["x"], "g": words["f"]}
    )
    tokens = {"x": (INT, ["batch", "tokens"])}
    write("limited", [("Neg", ["x"], ["y"], {})], tokens, {"y": tokens["x"]})
    write("reshaped", [("Neg", ["x"], ["y"], {})], row, {"y": row["x"]})
    table = {"w": np.ones((5, 3), np.float32)}
    golden = Contract(samples=(Sample({"x": np.array([[2, 4]])}, {"y": np.ones((1, 2, 3), np.float32)}),))
    ends = {"y": (FLOAT, ["batch", 2, 3])}
    write("table", [("Gather", ["w", "x"], ["y"], {})], {"x": (INT, ["batch", 2])}, ends, table, contract=golden)
    write(
        "lone",
        [("Gather", ["w", "x"], ["y"], {})],
        {"x": (INT, ["batch", 2])},
        ends,
        {"w": np.ones((1, 3), np.float32)},
    )
    (folder / "ox.toml").write_text(TOML)
    with Server([folder], options=ModelConfig(device="cpu", instances=1)) as server:
        yield server


def as_bytes(document: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The request as the page sends it where an input or output is BF16."""
    blob = b""
    for tensor in document["inputs"]:
        if tensor["datatype"] == "BF16":
            data = np.array(tensor.pop("data"), np.float32).astype(ml_dtypes.bfloat16).tobytes()
            blob += data
            tensor["parameters"] = {"binary_data_size": len(data)}
    text = json.dumps(
        {**document, "parameters": {**document.get("parameters", {}), "binary_data_output": True}}
    ).encode()
    return text + blob, {"inference-header-content-length": str(len(text))}


NAMES = ["counter", "number", "word", "half", "wide", "pair", "words", "limited", "reshaped", "table"]


@rows("name", NAMES)
def test_the_model_takes_it(models: Server, connect: Any, name: str) -> None:
    with connect(models) as client:
        seen = set()
        for _ in range(64):  # two of the models have two possible inputs
            status, headers, body = client.ask("GET", f"/v2/ox/models/{name}/versions/1/random")
            assert status == 200 and headers["cache-control"] == "no-store"
            seen.add(body)
            document = json.loads(body)
            status, _, answer = client.ask("POST", f"/v2/models/{name}/infer", *as_bytes(document))
            assert status == 200, answer
        assert len(seen) > 1


def test_a_sequence_of_one_request(models: Server, connect: Any) -> None:
    """It leaves no state behind, and has an id that no client uses."""
    with connect(models) as client:
        ids = set()
        for name, kind in (("counter", str), ("number", int), ("word", str)):
            document = json.loads(client.ask("GET", f"/v2/ox/models/{name}/versions/1/random")[2])
            assert document["parameters"]["sequence_start"] and document["parameters"]["sequence_end"]
            assert type(document["parameters"]["sequence_id"]) is kind
            ids.add(document["parameters"]["sequence_id"])
            assert [tensor["name"] for tensor in document["inputs"]] == ["x"]
            assert client.ask("POST", f"/v2/models/{name}/infer", json.dumps(document).encode())[0] == 200
            figures = json.loads(client.ask("GET", "/v2/ox/figures")[2])
            assert figures["models"][name]["1"]["sequences"] == 0
    assert len(ids) == 3


def test_values_are_in_the_range_of_what_ran(models: Server, connect: Any) -> None:
    with connect(models) as client:
        for _ in range(10):
            (tensor,) = json.loads(client.ask("GET", "/v2/ox/models/table/versions/1/random")[2])["inputs"]
            assert tensor["shape"] == [1, 2] and set(tensor["data"]) <= {2, 3, 4}
        (tensor,) = json.loads(client.ask("GET", "/v2/ox/models/wide/versions/1/random")[2])["inputs"]
        assert tensor["shape"][2] >= 16  # with 8 the model fails
        (tensor,) = json.loads(client.ask("GET", "/v2/ox/models/reshaped/versions/1/random")[2])["inputs"]
        assert tensor["shape"] == [1, 2, 2]


def test_what_is_not_offered(models: Server, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(models) as client:
        with monkeypatch.context() as patch:
            patch.setattr(random_request, "MOST", 1)
            status, _, body = client.ask("GET", "/v2/ox/models/table/versions/1/random")
            assert status == 501 and "expected at most 1 numbers; got 2; try ox bench" in json.loads(body)["error"]
        status, _, body = client.ask("GET", "/v2/ox/models/lone/versions/1/random")
        assert status == 501 and "no random input ran when the model was loaded" in json.loads(body)["error"]
        assert client.ask("GET", "/v2/ox/models/other/versions/1/random")[0] == 404
        assert client.ask("GET", "/v2/ox/models/table/versions/2/random")[0] == 404


CARD = "[...document.querySelectorAll('details.model')].find((m) => m.querySelector('.name').innerText === 'NAME')"


def opened(browser: Any, name: str) -> str:
    """The expression of a model's card, which is opened."""
    card = CARD.replace("NAME", name)
    browser.until(f"!!{card}")
    browser.run(f"{card}.open = true")
    browser.until(f"!!{card}.querySelector('.choices')")
    return card


@pytest.mark.parametrize("name", ["counter", "half", "reshaped"])
def test_the_page_sends_it(models: Server, browser: Any, name: str) -> None:
    browser.open(models.url)
    card = opened(browser, name)
    browser.run(f"{card}.querySelector('button[type=submit]').click()")
    shown = browser.until(f"{card}.querySelector('.result').innerText")
    assert browser.run(f"{card}.querySelector('.result .error')?.innerText") is None
    if name == "half":  # as bytes both ways, which are the same
        assert browser.run(f"{card}.querySelector('textarea').hidden") and "y BF16 [1, 3]" in shown
        assert "--data-binary @request.bin" in browser.run(f"{card}.querySelector('.curl pre').textContent")
    else:
        document = json.loads(browser.run(f"{card}.querySelector('textarea').value"))
        assert ("parameters" in document) is (name == "counter") and "y FP32" in shown
    assert browser.problems == []


def test_bfloat16_on_the_page(models: Server, browser: Any) -> None:
    """Rounded to the nearest, ties to even."""
    browser.open(models.url)
    bits = {1.0: 0x3F80, -2.5: 0xC020, 0.0: 0, 1.00390625: 0x3F80, 1.01171875: 0x3F82, 3.3895313892515355e38: 0x7F7F}
    for value, expected in bits.items():
        assert browser.run(f"toBfloat16({value!r})") == expected
        assert np.float32(value).astype(ml_dtypes.bfloat16).view(np.uint16) == expected
    assert browser.run("fromBfloat16(0xc020)") == -2.5 and browser.run("toBfloat16(NaN)") == 0x7FC0
    assert browser.run("toBfloat16(Infinity)") == 0x7F80


def test_the_page_does_not_offer_it(models: Server, browser: Any) -> None:
    browser.open(models.url)
    card = opened(browser, "lone")
    assert "no random input ran when the model was loaded" in browser.run(f"{card}.innerText")
    assert browser.run(f"{card}.querySelector('.choices button').disabled")


@pytest.mark.parametrize("path", ["/a/b/", "/a/b", "/"])
def test_the_page_below_a_path(mlp: Path, browser: Any, path: str) -> None:
    with Server([mlp], options=ModelConfig(device="cpu", instances=1), root_path="/a/b") as server:
        browser.open(server.url + path)
        card = opened(browser, "mlp")
        browser.run(f"{card}.querySelector('button[type=submit]').click()")
        assert "y FP32 [1, 10]" in browser.until(f"{card}.querySelector('.result').innerText")
        assert f"{server.url}/a/b/v2/models/mlp" in browser.run(f"{card}.querySelector('.curl pre').textContent")
        links = browser.run("[...document.querySelectorAll('nav a')].map((link) => link.href)")
        assert links == [f"{server.url}/a/b/{name}" for name in ("docs", "openapi.json", "metrics")]
        assert browser.problems == []
