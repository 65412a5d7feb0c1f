"""Requests of several lengths in one batch: filled, masked, cut back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.errors import ArgumentError
from ox.graph.contract import TensorInfo
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.batching.padding import Padding, bucket
from ox.serve.repository.configuration import configuration
from ox.serve.repository.model import Model
from ox.tolerance import compare

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
IDS = TensorInfo("ids", "INT64", ("batch", "tokens"))
MASK = TensorInfo("mask", "FP32", ("batch", "tokens"))
OUT = TensorInfo("y", "FP32", ("batch", "tokens", 4))


def test_buckets_waste_a_fifth_at_most() -> None:
    lengths = range(1, 3000)
    assert all(bucket(n) >= n and bucket(bucket(n)) == bucket(n) for n in lengths)
    assert all(bucket(n) - n <= bucket(n) / 5 for n in lengths if n > 32)
    assert len({bucket(n) for n in lengths}) < 40 and bucket(0) == 8


def test_filling_and_cutting() -> None:
    pair = TensorInfo("bias", "FP32", ("batch", "tokens", "tokens"))
    padding = Padding(
        [IDS, MASK, pair], [OUT, TensorInfo("p", "FP32", ("batch", 2))], {"tokens": 7, "bias": -1}, "mask"
    )
    feeds: list[Any] = []
    for rows, tokens in ((1, 2), (2, 3)):
        feed = {"ids": np.ones((rows, tokens), np.int64), "bias": np.ones((rows, tokens, tokens), np.float32)}
        padding.complete(feed)
        feeds.append(feed)
    assert feeds[0]["mask"].tolist() == [[1, 1]] and feeds[0]["mask"].dtype == np.float32
    batch = padding.gather(feeds)
    assert batch["ids"].tolist() == [[1, 1, 7], [1, 1, 1], [1, 1, 1]] and batch["ids"].dtype == np.int64
    assert batch["mask"].tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert batch["bias"][0].tolist() == [[1, 1, -1], [1, 1, -1], [-1, -1, -1]]
    assert padding.share(batch, feeds) == (9, 1)
    y, p = np.arange(36).reshape(3, 3, 4), np.arange(6).reshape(3, 2)
    parts = padding.scatter([y, p], feeds)
    assert [[array.shape for array in part] for part in parts] == [[(1, 2, 4), (1, 2)], [(2, 3, 4), (2, 2)]]
    assert (parts[0][0] == y[:1, :2]).all() and (parts[1][0] == y[1:]).all() and (parts[1][1] == p[1:]).all()


def test_a_mask_that_is_sent_is_kept() -> None:
    padding = Padding([IDS, MASK], [OUT], {"tokens": 0}, "mask")
    feed = {"ids": np.ones((1, 2), np.int64), "mask": np.zeros((1, 2), np.float32)}
    padding.complete(feed)
    assert not feed["mask"].any()


def test_whole_buckets_for_a_gpu() -> None:
    padding = Padding([IDS], [OUT], {"tokens": 0}, whole=True)
    assert padding.gather([{"ids": np.ones((2, 3), np.int64)}])["ids"].tolist() == [[1, 1, 1, 0, 0, 0, 0, 0]] * 2


def test_the_last_bucket_ends_at_the_largest_size() -> None:
    padding = Padding([IDS], [OUT], {"tokens": 7}, whole=True, most={"tokens": 20})
    assert padding.lengths("tokens") == [8, 16, 20]
    assert padding.gather([{"ids": np.ones((1, 17), np.int64)}])["ids"].tolist() == [[1] * 17 + [7] * 3]
    assert [size for size in range(1, 40) if padding.is_whole("tokens", size)] == [8, 16, 20]
    assert Padding([IDS], [OUT], {"tokens": 0}, whole=True).lengths("tokens") is None
    feed = {"ids": np.ones((2, 3), np.int64)}
    assert padding.resized(feed, {"tokens": 5})["ids"].tolist() == [[1, 1, 1, 7, 7]] * 2
    assert padding.resized(feed, {"tokens": 2})["ids"].tolist() == [[1, 1]] * 2


def test_lengths_are_listed_without_looking_at_each_size() -> None:
    def lengths(most: int) -> list[int] | None:
        return Padding([IDS], [OUT], {"tokens": 7}, whole=True, most={"tokens": most}).lengths("tokens")

    for most in (1, 7, 8, 9, 100, 2048, 3000):
        assert lengths(most) == sorted({min(bucket(size), most) for size in range(1, most + 1)})
    ends = lengths(10**12)
    assert ends is not None and len(ends) < 200 and ends[-1] == 10**12


def test_neighbours_share_a_group() -> None:
    padding = Padding([IDS, TensorInfo("x", "FP32", ("batch", "d", 3))], [OUT], {"tokens": 0})

    def key(tokens: int, d: int) -> Any:
        return padding.key({"ids": np.ones((1, tokens), np.int64), "x": np.ones((1, d, 3), np.float32)})

    assert key(3, 5) == key(8, 5) != key(9, 5) and key(3, 5) != key(3, 6)


@pytest.mark.parametrize(
    ("pad", "mask", "what"),
    [
        ({"words": 0}, None, "an unknown dimension"),
        ({"ids": 0}, None, "an unknown dimension"),
        ({"tokens": 0}, "nothing", "mask does not name a usable input"),
        ({"tokens": 0}, "text", "mask does not name a usable input"),
        ({"tokens": 0}, "other", "no other input"),
    ],
)
def test_what_cannot_be_padded(pad: Any, mask: Any, what: str) -> None:
    text, other = TensorInfo("text", "BYTES", ("batch", 1)), TensorInfo("other", "FP32", ("batch", "else"))
    with pytest.raises(ArgumentError, match=what):
        Padding([IDS, text, other], [OUT], pad, mask)
    with pytest.raises(ArgumentError, match="strings cannot be padded"):
        Padding([TensorInfo("text", "BYTES", ("batch", "tokens"))], [OUT], {"tokens": 0})


# ---- models that can be padded, and others


def pooled(build: Any, masked: bool) -> Path:
    """Embeds tokens and gives each one's vector and their mean: over all, or over those that the mask names."""
    table = np.random.default_rng(0).standard_normal((11, 4)).astype(np.float32)
    nodes: list[Any] = [("Gather", ["table", "ids"], ["each"], {})]
    inputs = {"ids": (INT, ["batch", "tokens"])}
    weights: dict[str, Any] = {"table": table, "axis": np.array([1], np.int64)}
    if masked:
        inputs["mask"] = (FLOAT, ["batch", "tokens"])
        weights["last"] = np.array([2], np.int64)
        nodes += [
            ("Unsqueeze", ["mask", "last"], ["m"], {}),
            ("Mul", ["each", "m"], ["kept"], {}),
            ("ReduceSum", ["kept", "axis"], ["sum"], {"keepdims": 0}),
            ("ReduceSum", ["mask", "axis"], ["count"], {"keepdims": 1}),
            ("Div", ["sum", "count"], ["mean"], {}),
        ]
    else:
        nodes.append(("ReduceMean", ["each", "axis"], ["mean"], {"keepdims": 0}))
    outputs = {"each": (FLOAT, ["batch", "tokens", 4]), "mean": (FLOAT, ["batch", 4])}
    return build("pooled", nodes, inputs, outputs, weights)  # type: ignore[no-any-return]


def load(path: Path, **options: Any) -> Model:
    return Model(path, ModelConfig(max_rows=8, **options), RequestLimits())


def test_proven_with_a_mask(build: Any) -> None:
    model = load(pooled(build, True), pad={"tokens": 0}, mask="mask")
    assert model.padding is not None and "tokens padded, tried on a few inputs, not proven" in model.describe()
    assert str(said(model)).startswith("tried, not proven: with 'tokens' as the batch axis, ReduceSum 'sum' mixes rows")


def said(model: Model) -> Any:
    """What /config says of padding."""
    return configuration(model, None)["parameters"].get("ox_padding", {}).get("string_value")


def test_off_without_one(build: Any) -> None:
    model = load(pooled(build, False), pad={"tokens": 0})
    assert model.padding is None and model.proof.why is None
    assert "padding off: a sample of tokens 3 padded to" in model.describe()
    assert str(said(model)).startswith("off: a sample of tokens 3 padded to")
    assert said(load(pooled(build, False))) is None


def test_proven_from_the_graph(build: Any) -> None:
    """Each token for itself, beside a vector for each row that has no tokens."""
    weights: dict[str, Any] = {
        "table": np.ones((11, 4), np.float32),
        "w": np.ones((4, 2), np.float32),
        "one": np.array([1]),
    }
    nodes = [("Gather", ["table", "ids"], ["each"], {}), ("Unsqueeze", ["style", "one"], ["s"], {}),
             ("Add", ["each", "s"], ["a"], {}), ("MatMul", ["a", "w"], ["y"], {}),
             ("Softmax", ["style"], ["z"], {})]  # fmt: skip
    inputs = {"ids": (INT, ["batch", "tokens"]), "style": (FLOAT, ["batch", 4])}
    outputs = {"y": (FLOAT, ["batch", "tokens", 2]), "z": (FLOAT, ["batch", 4])}
    model = load(build("tokens", nodes, inputs, outputs, weights), pad={"tokens": 0})
    assert "tokens padded, proven from the graph" in model.describe() and said(model) == "proven"


MIXING: list[tuple[str, list[Any], list[Any], list[Any], str]] = [
    ("threshold on the largest",
     [("ReduceMax", ["x", "axis"], ["m"], {"keepdims": 1}), ("Greater", ["m", "limit"], ["c"], {}),
      ("Where", ["c", "m", "none"], ["a"], {}), ("Add", ["x", "a"], ["y"], {})],
     ["batch", "tokens"], ["batch", "tokens"], "with 'tokens' as the batch axis, ReduceMax 'm' mixes rows"),
    ("running sum", [("CumSum", ["x", "one"], ["y"], {})],
     ["batch", "tokens"], ["batch", "tokens"], "with 'tokens' as the batch axis, CumSum 'y' mixes rows"),
    ("sum of what is filled with zeros", [("ReduceSum", ["x", "axis"], ["y"], {"keepdims": 1})],
     ["batch", "tokens"], ["batch", 1], "with 'tokens' as the batch axis, ReduceSum 'y' mixes rows"),
    ("twice", [("Relu", ["x"], ["y"], {})],
     ["batch", "tokens", "tokens"], ["batch", "tokens", "tokens"], "a tensor has 'tokens' twice"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "dims", "out", "why"), [c[1:] for c in MIXING], ids=[c[0] for c in MIXING])
def test_tried_only(build: Any, nodes: Any, dims: Any, out: Any, why: str) -> None:
    weights = {"axis": np.array([1]), "one": np.array(1), "limit": np.array(1000, np.float32),
               "none": np.array(0, np.float32)}  # fmt: skip
    used = {name for node in nodes for name in node[1]}
    weights = {name: value for name, value in weights.items() if name in used}
    model = load(build("mixing", nodes, {"x": (FLOAT, dims)}, {"y": (FLOAT, out)}, weights), pad={"tokens": 0})
    assert "tried on a few inputs, not proven" in model.describe()
    assert str(said(model)).startswith(f"tried, not proven: {why}")


def test_off_where_lengths_do_not_matter_to_the_runtime(build: Any) -> None:
    """A length of 8 alone runs, so nothing can be tried."""
    weights = {"w": np.random.default_rng(0).standard_normal((8, 2)).astype(np.float32)}
    ends = {"x": (FLOAT, ["batch", "tokens"])}, {"y": (FLOAT, ["batch", 2])}
    model = load(build("eight", [("MatMul", ["x", "w"], ["y"], {})], *ends, weights), pad={"tokens": 0})
    assert model.padded.refusal == "no valid inputs of several lengths to try it with"


def test_off_without_batches(build: Any) -> None:
    nodes = [("Identity", ["x"], ["y"], {})]
    model = load(build("one", nodes, {"x": (FLOAT, [1, "tokens"])}, {"y": (FLOAT, [1, "tokens"])}), pad={"tokens": 0})
    assert model.padded.refusal == "no batches"


def test_through_the_server(build: Any, connect: Any) -> None:
    """Clients of several lengths, with and without a mask, share batches and get what they would get alone."""
    path = pooled(build, True)
    alone = load(path).engine
    options = ModelConfig(max_rows=8, instances=1, max_wait_ms=20, pad={"tokens": 0}, mask="mask")
    with Server([path], options=options) as server:

        def one(length: int) -> None:
            generator = np.random.default_rng(length)
            ids = generator.integers(0, 11, (1, length))
            mask = (generator.random((1, length)) < 0.7).astype(np.float32)
            mask[0, 0] = 1.0
            for given in (None, mask):
                inputs = [{"name": "ids", "shape": [1, length], "datatype": "INT64", "data": ids.ravel().tolist()}]
                if given is not None:
                    inputs.append(
                        {"name": "mask", "shape": [1, length], "datatype": "FP32", "data": mask.ravel().tolist()}
                    )
                with connect(server) as client:
                    status, _, body = client.ask(
                        "POST", "/v2/models/pooled/infer", json.dumps({"inputs": inputs}).encode()
                    )
                assert status == 200, body
                feed = {"ids": ids, "mask": np.ones_like(mask) if given is None else given}
                for output, expected in zip(json.loads(body)["outputs"], alone.run(feed), strict=True):
                    got = np.array(output["data"], np.float32).reshape(output["shape"])
                    assert compare(got, expected).ok

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(one, [1, 2, 3, 5, 8, 9, 13, 16] * 4))
        stats = server.models[0].batcher.stats
        assert stats.cells > stats.padding > 0 and sum(stats.by_reason().values()) < 64
