"""The executors of the CPU: which one runs, that both give the same, and what they do to the rest of a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox import devices
from ox.core.operator import OPS
from ox.devices import dispatch_table, node_model, node_session
from ox.dtypes import bfloat16, float32, float64, int64
from ox.errors import ArgumentError, DeviceError, OxError, ShapeError
from ox.installation import install_command
from ox.tensors.tensor import Tensor, make_tensor
from ox.tolerance import compare

# The offers of ONNX Runtime, behind those of the compiled kernels (tests/kernels)
pytestmark = pytest.mark.usefixtures("without_kernels")

R = np.random.default_rng(3)


def f(*shape: int) -> np.ndarray[Any, Any]:
    return np.asarray(R.random(shape, dtype=np.float32) + np.float32(0.1))


def ran_on_onnxruntime(y: Tensor) -> bool:
    """Its outputs lie in its arena, which NumPy sees as somebody else's memory."""
    return type(y.array.base).__name__ == "PyCapsule"


def recurrent(gates: int) -> tuple[list[Any], dict[str, Any]]:
    """Small weights, [directions, gates * hidden, ...], which keep the gates off their ends."""
    return [f(30, 20, 64), f(1, gates * 32, 64) / 50, f(1, gates * 32, 32) / 50], {"hidden_size": 32}


# one call above the size of every operator of the allow-list, made so that NumPy and ONNX Runtime can be compared
LARGE: dict[str, Callable[[], tuple[list[Any], dict[str, Any]]]] = {
    **{name: lambda: ([f(400, 500), f(400, 500)], {}) for name in ("Add", "Sub", "Mul", "Equal", "Greater", "Less")},
    **{name: lambda: ([f(400, 500), f(500)], {}) for name in ("GreaterOrEqual", "LessOrEqual")},
    **{
        name: lambda: ([f(400, 500) - np.float32(0.5)], {})
        for name in (
            *("Relu", "Exp", "Tanh", "Sigmoid", "Erf", "Gelu", "LeakyRelu", "Softsign", "HardSigmoid", "HardSwish"),
            "ThresholdedRelu",
        )
    },
    **{name: lambda: ([f(40, 50)], {"axis": 1}) for name in ("Softmax", "LogSoftmax")},
    **{
        name: lambda: ([f(80, 50, 20), np.array([2, 1])], {})
        for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
    },
    "Clip": lambda: ([f(400, 50), np.array(0.2, "f"), np.array(0.5, "f")], {}),
    "Where": lambda: ([f(400, 50) > 0.5, f(400, 50), f(50)], {}),
    "Cast": lambda: ([f(400, 50)], {"to": 10}),
    "Gather": lambda: ([f(50, 64), R.integers(-50, 50, (40, 50))], {}),
    "ScatterElements": lambda: (
        [f(500, 64), np.repeat(R.permutation(500)[:400, None], 64, 1), f(400, 64)],
        {},
    ),
    "LayerNormalization": lambda: ([f(40, 50), f(50), f(50)], {}),
    "BatchNormalization": lambda: ([f(40, 5, 8, 8), f(5), f(5), f(5), f(5)], {}),
    "MatMul": lambda: ([f(100, 200), f(200, 300)], {}),
    "Gemm": lambda: ([f(200, 100), f(200, 300), f(300)], {"transA": 1, "alpha": 0.5}),
    "Conv": lambda: ([f(2, 3, 9, 8), f(4, 3, 3, 3), f(4)], {"pads": [1, 0, 1, 0], "strides": [2, 1]}),
    "ConvTranspose": lambda: ([f(2, 3, 9, 8), f(3, 4, 3, 3)], {"strides": [2, 1]}),
    "MaxPool": lambda: ([f(2, 3, 9, 8)], {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "AveragePool": lambda: ([f(2, 3, 9, 8)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "Resize": lambda: (
        [f(4, 3, 30, 28), None, None, np.array([41, 19])],
        {"axes": [2, 3], "mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "GridSample": lambda: ([f(4, 3, 30, 28), f(4, 9, 8, 2)], {}),
    "GlobalAveragePool": lambda: ([f(8, 30, 9, 8)], {}),
    "RNN": lambda: recurrent(1),
    "GRU": lambda: recurrent(3),
    "LSTM": lambda: recurrent(4),
}


@rows("name", dispatch_table.ALLOWED)
def test_the_allow_list_gives_what_numpy_gives(name: str) -> None:
    arrays, attributes = LARGE[name]()
    fast = OPS[name](*arrays, **attributes)
    with devices.forced("numpy"):
        slow = OPS[name](*arrays, **attributes)
    assert ran_on_onnxruntime(fast)
    assert not ran_on_onnxruntime(slow)
    assert fast.dtype == slow.dtype
    assert compare(fast.array, slow.array).ok


@rows("name", dispatch_table.ALLOWED)
def test_strided_inputs(name: str) -> None:
    """A view is never read as if it lay in a row."""
    arrays, attributes = LARGE[name]()
    schema = OPS[name].schema
    strided = [
        a
        if a is None or a.ndim < 2 or schema.input_at(i).host
        else np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1)
        for i, a in enumerate(arrays)
    ]
    got = OPS[name](*strided, **attributes)
    with devices.forced("numpy"):
        assert compare(got.array, OPS[name](*arrays, **attributes).array).ok


@rows("value", [np.nan, np.inf, -np.inf])
@rows("name", dispatch_table.ALLOWED)
def test_what_is_not_finite_stays_visible(name: str, value: float) -> None:
    """A NaN or infinity comes out where NumPy has one: a run must stop at its loss whichever executor ran."""
    arrays, attributes = LARGE[name]()
    first = next(i for i, a in enumerate(arrays) if a is not None and a.dtype == float32)
    arrays[first].reshape(-1)[::37] = value
    fast = OPS[name](*arrays, **attributes)
    with devices.forced("numpy"):
        slow = OPS[name](*arrays, **attributes)
    assert np.array_equal(np.isnan(fast.array), np.isnan(slow.array))
    assert np.array_equal(np.isinf(fast.array), np.isinf(slow.array))


@rows(
    "shapes", [((80, 90), (90, 70)), ((3, 80, 90), (90, 70)), ((3, 80, 90), (3, 90, 70)), ((2, 1, 80, 90), (3, 90, 70))]
)
@rows("turned", ["a", "b", "ab", ""])
@rows("dtype", [float32, float64])
def test_products_of_transposed_views(shapes: Any, turned: str, dtype: Any) -> None:
    a, b = (f(*shape).astype(dtype) for shape in shapes)
    if "a" in turned:
        a = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    if "b" in turned:
        b = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    y = OPS["MatMul"](a, b)
    assert ran_on_onnxruntime(y) or y.array.base is not None
    assert compare(y.array, np.matmul(a, b)).ok
    if a.ndim == b.ndim == 2:
        assert compare(OPS["Gemm"](a, b).array, np.matmul(a, b)).ok
        assert compare(OPS["Gemm"](a.T, b.T, transA=1, transB=1).array, np.matmul(a, b)).ok


def test_a_nan_stays_in_a_scattered_maximum() -> None:
    values, places = f(4000, 4), np.repeat(np.arange(4000) % 3, 4).reshape(-1, 4)
    values[5] = np.nan
    for reduction in ("max", "min", "mul", "add"):
        got = OPS["ScatterElements"](f(3, 4), places, values, reduction=reduction)
        assert np.isnan(got.array).any(1).tolist() == [False, False, True]


def test_small_calls_stay_on_numpy() -> None:
    for name in ("Add", "Relu", "MatMul", "Gelu"):
        arrays = [f(4, 4)] * (2 if name in ("Add", "MatMul") else 1)
        assert not ran_on_onnxruntime(OPS[name](*arrays))


def test_other_types_stay_on_numpy() -> None:
    assert not ran_on_onnxruntime(OPS["Add"](*[f(400, 500).astype(int64)] * 2))


def test_an_error_speaks_of_the_users_call() -> None:
    with pytest.raises(ShapeError, match="MatMul cannot multiply"):
        OPS["MatMul"](f(300, 300), f(200, 300))
    with pytest.raises(OxError, match="out of bounds"):
        OPS["Gather"](f(50, 64), np.full(2000, 50))


def test_forced_by_name() -> None:
    with devices.forced("onnxruntime"):
        assert OPS["Add"](f(2), f(2)).array.tolist()
        with devices.forced("numpy"):
            assert not ran_on_onnxruntime(OPS["MatMul"](f(300, 300), f(300, 300)))
            with devices.forced(None):
                assert ran_on_onnxruntime(OPS["MatMul"](f(300, 300), f(300, 300)))
    with pytest.raises(ArgumentError, match="no executor 'torch'"), devices.forced("torch"):
        pass


def test_forced_onnxruntime_says_when_it_has_no_kernel() -> None:
    x = make_tensor(np.ones((2, 2), bfloat16))
    with (
        devices.forced("onnxruntime"),
        pytest.raises(devices.NoKernelError, match="no CPU kernel for MatMul in bfloat16"),
    ):
        OPS["MatMul"](x, x)
    assert issubclass(devices.NoKernelError, DeviceError)


def test_bfloat16_passes_through_onnxruntime() -> None:
    x = np.array([[1.5, -2.0, 0.1]], bfloat16)
    with devices.forced("onnxruntime"):
        turned = OPS["Transpose"](x, perm=[1, 0])
        wide = OPS["Cast"](x, to=1)
    assert turned.dtype == bfloat16
    assert np.array_equal(turned.array, x.T)
    assert np.array_equal(wide.array, x.astype(float32))


def test_optional_inputs_and_several_outputs() -> None:
    x = f(5, 4)
    with devices.forced("onnxruntime"):
        assert np.array_equal(OPS["Clip"](x, None, np.array(0.5, "f")).array, np.minimum(x, np.float32(0.5)))
        halves = OPS["Split"](x, num_outputs=2, outputs=2)
        y, indices = OPS["MaxPool"](x.reshape(1, 1, 5, 4), kernel_shape=[2, 2], outputs=2)
    assert [h.shape for h in halves] == [(3, 4), (2, 4)]
    assert np.array_equal(x.ravel()[indices.array], y.array)


def test_a_call_that_only_an_older_opset_can_say() -> None:
    """Range is newest at opset 27, which ONNX Runtime does not know; its older form says the same."""
    assert next(node_model.opsets("Range", {}, {}, 3, 1)) <= node_model.NEWEST
    assert not list(node_model.opsets("Range", {}, {}, 4, 1))
    assert not list(node_model.opsets("NoSuchOperator", {}, {}, 1, 1))


# what it costs


def held() -> int:
    """Bytes in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_two_hundred_sessions_keep_no_memory_each() -> None:
    """200 sessions that each made a 16 MB output: with an arena each they would keep 3.2 GB."""
    x = f(4 << 20)
    for _ in range(5):
        OPS["Clip"](x, np.array(0.1, "f"), np.array(0.2, "f"))
    before = held()
    made = node_session.session.cache_info().misses
    for i in range(200):
        dispatch_table.run(OPS["LayerNormalization"], [x.reshape(-1, 1024), x[:1024]], {"epsilon": 1e-5 + i * 1e-6})
    assert node_session.session.cache_info().misses >= made + 200
    assert held() - before < 200e6


def test_the_cache_has_an_end() -> None:
    assert node_session.session.cache_info().maxsize == node_session.SESSIONS
    assert node_session.vendor_session.cache_info().maxsize == node_session.SESSIONS


def test_attributes_as_keys() -> None:
    attributes = {"value": np.array([1.0, 2.0], "f"), "pads": [1, 2], "mode": "edge", "absent": None}
    key = node_model.freeze(attributes)
    assert hash(key) == hash(node_model.freeze(dict(attributes)))
    assert key == node_model.freeze({**attributes, "value": np.array([1.0, 2.0], "f")})
    assert key != node_model.freeze({**attributes, "value": np.array([1.0, 3.0], "f")})
    back = node_model.thaw(key)
    assert back.pop("value").tolist() == [1.0, 2.0]
    assert back == {"pads": (1, 2), "mode": "edge"}


# the rest of the process


def python(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


BIG = "import numpy as np\nimport ox\nfrom ox.core.operator import OPS\nx = np.ones((300, 300), 'f')\n"


def test_the_programs_own_sessions_still_open() -> None:
    """A shared pool makes ONNX Runtime refuse sessions with pools of their own, which is what programs ask for."""
    code = BIG + (
        "OPS['MatMul'](x, x)\n"
        "import onnxruntime as ort\n"
        "from ox.devices.probe import _one_node\n"
        "y = np.arange(3, dtype='f')\n"
        "options = ort.SessionOptions()\n"
        "options.intra_op_num_threads = 2\n"
        "for s in (ort.InferenceSession(_one_node()),\n"
        "          ort.InferenceSession(_one_node(), options, providers=['CPUExecutionProvider']),\n"
        "          ort.InferenceSession(path_or_bytes=_one_node(), sess_options=ort.SessionOptions())):\n"
        "    assert s.run(None, {'x': y})[0].tolist() == [0, 2, 4]\n"
        "assert options.intra_op_num_threads == 2\n"
        "print('fine')\n"
    )
    assert python(code).split() == ["fine"]


def test_a_program_that_came_first_keeps_its_sessions() -> None:
    code = BIG + (
        "import onnxruntime as ort\n"
        "from ox.devices.probe import _one_node\n"
        "own = ort.InferenceSession(_one_node())\n"
        "OPS['MatMul'](x, x)\n"
        "assert own.run(None, {'x': np.ones(1, 'f')})[0] == 2\n"
        "print('fine')\n"
    )
    assert python(code).split() == ["fine"]


def test_a_program_that_made_its_own_pool_and_arena_keeps_them() -> None:
    code = BIG + (
        "import onnxruntime as ort\n"
        "ort.set_global_thread_pool_sizes(1, 1)\n"
        "memory = ort.OrtMemoryInfo('Cpu', ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)\n"
        "ort.create_and_register_allocator(memory, ort.OrtArenaCfg(0, 1, -1, -1))\n"
        "print(OPS['MatMul'](x, x).array[0, 0], type(OPS['MatMul'](x, x).array.base).__name__)\n"
    )
    assert python(code).split() == ["300.0", "PyCapsule"]


@pytest.mark.parametrize("first", ["", "OPS['Relu'](x)\n"], ids=["server first", "eager call first"])
def test_the_memory_limit_of_a_server_in_this_process_is_its_own(first: str) -> None:
    code = BIG + (
        "from ox.devices import arena, forced\n"
        "from ox.devices.runtime import onnxruntime\n"
        "with forced('onnxruntime'):\n"
        f"    {first or 'pass'}\n"
        "    arena.shared_arena(onnxruntime(), 1024)\n"
        "    print(OPS['MatMul'](x, x).array[0, 0], OPS['Add'](x, x).array[0, 0])\n"
    )
    assert python(code).split() == ["300.0", "2.0"]


def test_two_threads_may_come_first_together() -> None:
    code = BIG + (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    print({float(y.array[0, 0]) for y in pool.map(lambda _: OPS['MatMul'](x, x), range(32))})\n"
    )
    assert python(code).split() == ["{300.0}"]


def test_nothing_is_imported_before_a_large_call() -> None:
    code = BIG + (
        "import sys\n"
        "OPS['MatMul'](x[:4, :4], x[:4, :4])\n"
        "print([m for m in ('onnx', 'onnxruntime') if m in sys.modules])\n"
        "OPS['MatMul'](x, x)\n"
        "print('onnxruntime' in sys.modules)\n"
    )
    assert python(code).split() == ["[]", "True"]


def test_without_onnxruntime_numpy_does_all() -> None:
    code = (
        "import sys\nsys.modules['onnxruntime'] = None\n"
        + BIG
        + (
            "print(OPS['MatMul'](x, x).array[0, 0], OPS['Gelu'](x).array.shape)\n"
            "from ox import devices\n"
            "try:\n"
            "    with devices.forced('onnxruntime'):\n"
            "        OPS['MatMul'](x, x)\n"
            "except ox.errors.DeviceError as error:\n"
            "    print(error)\n"
        )
    )
    out = python(code)
    assert "300.0 (300, 300)" in out
    assert install_command("cpu") in out


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_child_does_not_wait_for_threads_it_lacks() -> None:
    code = BIG + (
        "import os, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "x = np.ones((600, 600), 'f')\n"
        "OPS['MatMul'](x, x); OPS['Gelu'](x)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    OPS['Gelu'](x); OPS['Softmax'](x); os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert python(code).split() == ["7"]


@pytest.mark.parametrize(("name", "gates", "places"), [("RNN", 1, [0]), ("GRU", 3, [1]), ("LSTM", 4, [1, 2])])
def test_softplus_of_large_numbers_in_recurrent_operators(name: str, gates: int, places: list[int]) -> None:
    """ONNX Runtime computes log(1 + exp(x)), which is infinite above 88."""
    (x, w, r), attributes = recurrent(gates)
    own = ["Softplus" if i in places else "Sigmoid" for i in range(1 + places[-1])]
    tensors = [make_tensor(each) for each in (x * 100, w * 50, r)]
    y = OPS[name](*tensors, **attributes, activations=own)
    assert not ran_on_onnxruntime(y) and np.isfinite(y.array).all()
    with devices.forced("numpy"):
        assert compare(y.array, OPS[name](*tensors, **attributes, activations=own).array).ok
