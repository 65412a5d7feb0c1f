"""The models on disk, what is done to them meanwhile, and which answers are therefore right at a given time."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ox.graph.contract import Contract, Sample, TensorInfo

WIDTH = 8
GRACE_S = 20.0  # a version may answer this long after its file went: it is looked for, loaded and drained meanwhile
KEPT = 3  # versions of `grow` on disk
STABLE = np.random.default_rng(1).integers(-3, 4, (WIDTH, WIDTH)).astype(np.float32)


def add(number: float, samples: tuple[Sample, ...] = ()) -> bytes:
    """y = x + number, exactly: the answer says which file gave it."""
    return _model([("Add", ["x", "c"])], {"c": np.full(WIDTH, number, np.float32)}, samples=samples)


def product() -> bytes:
    return _model([("MatMul", ["x", "c"])], {"c": STABLE})


def picky() -> bytes:
    """y = x of the rows that i names, and an error where there is no such row: one sample's run fails."""
    info = (TensorInfo("i", "INT64", ("batch",)),)
    out = (TensorInfo("y", "FP32", ("batch", WIDTH)),)
    table = np.arange(4 * WIDTH, dtype=np.float32).reshape(4, WIDTH)
    rows = [np.array([n]) for n in range(4)]
    samples = tuple(Sample({"i": row}, {"y": table[row]}) for row in rows)
    nodes = [helper.make_node("Gather", ["t", "i"], ["y"])]
    ends = [
        helper.make_tensor_value_info("i", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(table, "t")])
    return _bytes(graph, Contract(info, out, samples, "0.1.0", "soak"))


def proven_wrong(number: float) -> bytes:
    """A file whose golden sample it does not fulfil: it must never be served."""
    x = np.ones((1, WIDTH), np.float32)
    return add(number, (Sample({"x": x}, {"y": x + number + 1}),))


def _model(nodes: list[tuple[str, list[str]]], weights: dict[str, Any], samples: tuple[Sample, ...] = ()) -> bytes:
    made = [helper.make_node(kind, inputs, ["y"]) for kind, inputs in nodes]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in "xy"]
    constants = [numpy_helper.from_array(array, key) for key, array in weights.items()]
    infos = [(TensorInfo(name, "FP32", ("batch", WIDTH)),) for name in "xy"]
    contract = Contract(infos[0], infos[1], samples, "0.1.0", "soak") if samples else None
    return _bytes(helper.make_graph(made, "g", ends[:1], ends[1:], constants), contract)


def _bytes(graph: onnx.GraphProto, contract: Contract | None) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if contract is not None:
        helper.set_model_props(model, contract.to_metadata())
    return bytes(model.SerializeToString())


class World:
    """`grow` gets ever higher versions, `flip` is replaced in place, `guest` comes and goes, `broken` never works;
    `stable` and `picky` stay as they are. `ledger` counts what was done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.random = random.Random(0)
        self.done: dict[str, int] = {}
        self.files: dict[tuple[str, int], list[list[float]]] = {}  # (model, number): when it lay there, from and to
        self.newest = 1  # of grow
        self.flipped = 1
        self._seen: dict[str, list[tuple[float, int]]] = {"grow": []}
        for name in ("grow", "flip", "guest"):
            self.put(name, 1, add(1))
            self.lies(name, 1)
        self.put("stable", 1, product())
        self.put("picky", 1, picky())
        self.put("broken", 1, b"\x08\x0a no model")

    # ---- the disk

    def path(self, name: str, version: int) -> Path:
        return self.folder / name / str(version) / "model.onnx"

    def put(self, name: str, version: int, data: bytes) -> None:
        """As one should: written beside, then renamed."""
        path = self.path(name, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        beside.write_bytes(data)
        os.replace(beside, path)

    def lies(self, name: str, number: int) -> None:
        self.files.setdefault((name, number), []).append([perf_counter(), float("inf")])

    def gone(self, name: str, number: int) -> None:
        for span in self.files.get((name, number), []):
            span[1] = min(span[1], perf_counter())

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    async def trouble(self) -> None:
        """Never stops changing things."""
        acts = [self.grow, self.flip, self.come_and_go, self.corrupt_new, self.corrupt_old, self.slowly, self.wrong]
        while True:
            for act in self.random.sample(acts, len(acts)):
                await act()
                await asyncio.sleep(self.random.uniform(0.2, 1.0))

    async def grow(self) -> None:
        self.newest += 1
        self.lies("grow", self.newest)
        self.put("grow", self.newest, add(self.newest))
        old = self.newest - KEPT
        if old > 0:
            self.gone("grow", old)
            shutil.rmtree(self.folder / "grow" / str(old), ignore_errors=True)
        self.count("new versions")

    async def flip(self) -> None:
        self.flipped += 1
        self.gone("flip", self.flipped - 1)
        self.lies("flip", self.flipped)
        self.put("flip", 1, add(self.flipped))
        self.count("files replaced")

    async def come_and_go(self) -> None:
        folder = self.folder / "guest"
        if folder.exists():
            self.gone("guest", 1)
            shutil.rmtree(folder)
            self.count("models removed")
        else:
            self.lies("guest", 1)
            self.put("guest", 1, add(1))
            self.count("models added")

    async def corrupt_new(self) -> None:
        """A damaged version above all others; the one below must go on."""
        path = self.path("grow", self.newest + 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(add(self.newest + 1)[: self.random.randrange(1, 60)])
        self.count("damaged versions")
        await asyncio.sleep(2.5)
        shutil.rmtree(path.parent)

    async def corrupt_old(self) -> None:
        """The file that is being served, overwritten with nonsense; then one that works."""
        self.path("flip", 1).write_bytes(os.urandom(300))
        self.count("files overwritten with nonsense")
        await asyncio.sleep(2.5)
        await self.flip()

    async def slowly(self) -> None:
        """A file that is copied for a while."""
        data = add(self.newest + 1)
        self.newest += 1
        self.lies("grow", self.newest)
        path = self.path("grow", self.newest)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for at in range(0, len(data), len(data) // 4 + 1):
                file.write(data[at : at + len(data) // 4 + 1])
                file.flush()
                await asyncio.sleep(0.7)
        self.count("files written slowly")

    async def wrong(self) -> None:
        """A replacement whose golden sample is not fulfilled."""
        self.put("flip", 1, proven_wrong(-1))
        self.count("files that contradict their golden sample")
        await asyncio.sleep(2.5)
        await self.flip()

    # ---- what may be answered

    def problem(self, model: str, number: int, sent: float) -> str | None:
        """Whether `number` may have answered a request for the model's newest version that was sent then."""
        now = perf_counter()
        if not any(begun <= now and ended >= sent - GRACE_S for begun, ended in self.files.get((model, number), [])):
            return f"{model} answered with {number}, which was not there"
        seen = self._seen.get(model)
        if seen is not None:  # versions only rise: what was seen before a request left binds its answer
            before = max((n for when, n in seen if when < sent), default=0)
            if number < before:
                return f"{model} answered with {number} after {before}"
            if not seen or number > seen[-1][1]:
                seen.append((now, number))
        return None
