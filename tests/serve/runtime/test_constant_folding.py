"""Small files that grow while they are loaded: constants computed ahead, functions in functions, sparse tensors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rows import rows

from ox.errors import LoadError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model
from ox.serve.runtime.constant_folding import MIB, MIN_LIMIT, largest_fold
from ox.serve.runtime.source import read

pytestmark = pytest.mark.usefixtures("usual_arena", "forked_processes")

F, INT = TensorProto.FLOAT, TensorProto.INT64
ENDS: tuple[Any, Any] = ({"x": (F, ["batch", 1])}, {"y": (F, None)})
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
ROOT = Path(__file__).parents[3]
LIMIT = 3 << 30  # bytes of the process that reads a bomb: one that goes off fails the test, and not the machine
LOADS = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, {LIMIT}))
from ox.devices.onnxruntime.runtime import onnxruntime
from ox.errors import OxError
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read
onnxruntime()
def most():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024
before, said = most(), "loaded"
from pathlib import Path
try:
    Engine(read(Path(sys.argv[1])), "cpu", 1, 1, 256 << 20)
except OxError as error:
    said = error.one_line()
print(json.dumps([most() - before, said]))
"""


def loaded(path: Path) -> tuple[int, str]:
    """MiB that a process grows by while it loads a file, and what it says; the process may not have much."""
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(path)], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    grown, said = json.loads(done.stdout)
    return int(grown), str(said)


def added(nodes: list[Any], last: str, weights: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The nodes, and what makes an output of their last result."""
    return [*nodes, ("ReduceSum", [last], ["u"], {"keepdims": 0}), ("Add", ["x", "u"], ["y"], {})], weights


def doubling(turns: int, dtype: Any = np.float32) -> tuple[list[Any], dict[str, Any]]:
    nodes: list[Any] = [("Concat", [f"k{turn}"] * 2, [f"k{turn + 1}"], {"axis": 0}) for turn in range(turns)]
    return added([*nodes, ("Cast", [f"k{turns}"], ["k"], {"to": F})], "k", {"k0": np.ones(1, dtype)})


def doubling_inside(turns: int) -> tuple[list[Any], dict[str, Any]]:
    """In a branch."""
    node = helper.make_node
    nodes: list[Any] = [node("Constant", [], ["k0"], value_ints=[1])]
    nodes += [node("Concat", [f"k{turn}"] * 2, [f"k{turn + 1}"], axis=0) for turn in range(turns)]
    nodes += [node("Size", [f"k{turns}"], ["n"]), node("Cast", ["n"], ["z"], to=F)]
    branch = helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("z", F, None)])
    test = [("ReduceMax", ["x"], ["m"], {"keepdims": 0}), ("Cast", ["m"], ["c"], {"to": TensorProto.BOOL})]
    choice = ("If", ["c"], ["u"], {"then_branch": branch, "else_branch": branch})
    return [*test, choice, ("Add", ["x", "u"], ["y"], {})], {}


def many(count: int, side: int) -> tuple[list[Any], dict[str, Any]]:
    """Products of a column and a row: each of them is small enough, all together are not."""
    nodes: list[Any] = [("MatMul", ["column", "row"], ["p"], {})]
    nodes += [("Mul", ["p", f"s{i}"], [f"p{i}"], {}) for i in range(count)]
    nodes += [("Add", ["x", f"p{i}"], [f"q{i}"], {}) for i in range(count)]
    weights: dict[str, Any] = {f"s{i}": np.float32(i) for i in range(count)}
    weights |= {"column": np.ones((side, 1), np.float32), "row": np.ones((1, side), np.float32)}
    return [*nodes, ("Sum", [f"q{i}" for i in range(count)], ["y"], {})], weights


ONE = np.ones(1, np.float32)
COLUMN, ROW = np.ones((50_000, 1), np.float32), np.ones((1, 50_000), np.float32)
COUNT = {"a": np.float32(0), "b": np.float32(3e9), "c": np.float32(1)}
BOMBS = {
    "doubling": doubling(31),
    "doubling of integers": doubling(31, np.int64),
    "doubling in a branch": doubling_inside(31),
    "product": added([("MatMul", ["a", "b"], ["t"], {})], "t", {"a": COLUMN, "b": ROW}),
    "Expand": added([("Expand", ["k", "s"], ["t"], {})], "t", {"k": ONE, "s": np.array([3 * 10**9])}),
    "Tile": added([("Tile", ["k", "s"], ["t"], {})], "t", {"k": ONE, "s": np.array([10**9])}),
    "Range": added([("Range", ["a", "b", "c"], ["t"], {})], "t", COUNT),
    "many": many(60, 4000),
}


@LINUX
@rows("name", BOMBS)
def test_constants_that_grow(build: Any, name: str) -> None:
    """12 GB of constants in a file of kilobytes: it loads, or is refused, in little memory."""
    nodes, weights = BOMBS[name]
    path = build("bomb", nodes, *ENDS, weights)
    grown, said = loaded(path)
    assert grown < 900, (grown, said)


def test_what_is_computed_at_load_stays_within_the_budget(build: Any) -> None:
    nodes, weights = many(60, 4000)
    path = build("many", nodes, *ENDS, weights)
    assert read(path).largest_fold < 64_000_000  # bytes of one product
    nodes, weights = doubling(28)  # a gigabyte, of which read() may compute nothing
    assert largest_fold(onnx.load(build("doubling", nodes, *ENDS, weights)), 0) <= MIN_LIMIT // 2
    nodes, weights = many(2, 4000)
    assert read(build("two", nodes, *ENDS, weights)).largest_fold == MIN_LIMIT


def test_weights_are_still_prepared_ahead(build: Any) -> None:
    """A transposed weight of any size is no bomb."""
    weights = {"w": np.ones((100, 200_000), np.float32), "shape": np.array([100, 200_000])}  # 80 MB
    nodes: list[Any] = [
        ("Reshape", ["w", "shape"], ["v"], {}),
        ("Transpose", ["v"], ["t"], {}),
        ("Gather", ["t", "i"], ["y"], {}),
    ]
    path = build("t", nodes, {"i": (INT, ["n"])}, {"y": (F, ["n", 100])}, weights)
    assert read(path).largest_fold >= 80_000_000
    model = onnx.load(path)
    for count in (10, 100):  # results of which nothing is known share what is left
        nodes = [helper.make_node("NonZero", ["w"], [f"z{i}"]) for i in range(count)]
        model.graph.node.extend(nodes)
        assert 1 < largest_fold(model, 80_000_000) <= 320_000_000 // count
    assert largest_fold(onnx.ModelProto(), 0) == MIN_LIMIT


def test_nodes_of_subgraphs_count() -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph([helper.make_node("Tile", ["k", "s"], ["b"])], "body", [], [value("b", F, None)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    graph = helper.make_graph([node], "g", [value("c", TensorProto.BOOL, [])], [value("y", F, None)])
    assert largest_fold(helper.make_model(graph), 0) == MIN_LIMIT // 2


def function(name: str, inner: list[Any], *domains: str) -> Any:
    imports = [helper.make_opsetid(domain, 21 if not domain else 1) for domain in ("", *domains)]
    return helper.make_function("f", name, ["a"], ["b"], inner, imports)


def functions(last: str, bodies: list[Any]) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(last, ["k"], ["t"], domain="f"), helper.make_node("Add", ["x", "t"], ["y"])],
        "g", [value("x", F, ["batch", 1])], [value("y", F, None)],
        [numpy_helper.from_array(np.ones(1, np.float32), "k")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=bodies, ir_version=10)


def test_functions_that_double(tmp_path: Path) -> None:
    """A kilobyte of functions, each of which calls the one before twice: a million million nodes."""
    node = helper.make_node
    bodies = [function("F0", [node("Neg", ["a"], ["b"])])]
    for k in range(1, 40):
        calls = [node(f"F{k - 1}", ["a"], ["c"], domain="f"), node(f"F{k - 1}", ["c"], ["b"], domain="f")]
        bodies.append(function(f"F{k}", calls, "f"))
    onnx.save(functions("F39", bodies), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="functions of the file grow too many") as caught:
        read(tmp_path / "m.onnx")
    assert caught.value.expected == "at most 1,000,000 nodes"
    onnx.save(functions("F9", bodies[:10]), tmp_path / "m.onnx")
    assert read(tmp_path / "m.onnx").largest_fold == MIN_LIMIT
    itself = function("F0", [node("F0", ["a"], ["b"], domain="f")], "f")
    onnx.save(functions("F0", [itself]), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="call themselves"):
        read(tmp_path / "m.onnx")


def test_constants_inside_of_functions_count() -> None:
    node = helper.make_node
    bodies = [function("F0", [node("Concat", ["a", "a"], ["b"], axis=0)])]
    for k in range(1, 10):
        calls = [node(f"F{k - 1}", ["a"], ["c"], domain="f"), node(f"F{k - 1}", ["c"], ["b"], domain="f")]
        bodies.append(function(f"F{k}", calls, "f"))
    assert largest_fold(functions("F9", bodies), 0) <= MIN_LIMIT // 2  # 512 doublings


@LINUX
def test_values_that_double_with_functions(tmp_path: Path) -> None:
    """A vector that functions join with itself, again and again, is not computed while the file is read."""
    bodies = [function("F0", [helper.make_node("Concat", ["a", "a"], ["b"], axis=0)])]
    for k in range(1, 5):
        calls = [helper.make_node(f"F{k - 1}", ["a"], ["c"], domain="f")]
        bodies.append(function(f"F{k}", [*calls, helper.make_node(f"F{k - 1}", ["c"], ["b"], domain="f")], "f"))
    model = functions("F4", bodies)
    last = model.graph.node[0]
    last.output[0] = "k1"
    twice = helper.make_node("F4", ["k1"], ["t"], domain="f")  # 2^32 elements
    model.graph.node.insert(1, twice)
    onnx.save(model, tmp_path / "m.onnx")
    grown, said = loaded(tmp_path / "m.onnx")
    assert grown < 900, (grown, said)


def test_constants_that_functions_write_out_often(tmp_path: Path) -> None:
    """A megabyte inside of a function that is called a thousand times."""
    node = helper.make_node
    value = numpy_helper.from_array(np.ones(1 << 18, np.float32))
    inner = [node("Constant", [], ["c"], value=value), node("Add", ["a", "c"], ["b"])]
    calls = [node("F0", ["a" if k == 0 else f"c{k}"], [f"c{k + 1}"], domain="f") for k in range(1000)]
    outer = function("F1", [*calls, node("Identity", ["c1000"], ["b"])], "f")
    onnx.save(functions("F1", [function("F0", inner), outer]), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="functions of the file grow too many") as caught:
        read(tmp_path / "m.onnx")
    assert caught.value.expected == "at most 256 MiB" and caught.value.got == "1,000 MiB"


def test_sparse_tensors_that_are_not_small(tmp_path: Path) -> None:
    values = helper.make_tensor("s", F, [1], [1.0])
    model = functions("F0", [function("F0", [helper.make_node("Neg", ["a"], ["b"])])])
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, helper.make_tensor("i", INT, [1], [0]), [1 << 30])
    )
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="once they are dense") as caught:
        read(tmp_path / "m.onnx")
    assert caught.value.got == "8,192 MiB"


def test_a_model_that_no_request_could_run(build: Any) -> None:
    """Fixed shapes, and 4 GB between two operators."""
    weights = {"w": np.ones((1000, 1, 1, 1), np.float32)}
    nodes = [("Conv", ["x", "w"], ["t"], {}), ("ReduceSum", ["t"], ["y"], {"keepdims": 0})]
    path = build("wide", nodes, {"x": (F, [1, 1, 1000, 1000])}, {"y": (F, [])}, weights)
    with pytest.raises(LoadError, match="needs more memory than its runs may take") as caught:
        Model(path, ModelConfig("cpu"), RequestLimits(memory=256 * MIB))
    assert "--limit memory" in str(caught.value)
