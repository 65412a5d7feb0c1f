"""`ox.random.torch_compatible(True)`: the bits that PyTorch draws on the CPU, call by call and for whole models."""

from __future__ import annotations

import importlib
import inspect
import platform
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ox
from ox.devices import machine

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")
pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512") or platform.system() != "Linux",
    reason="PyTorch's numbers are matched as its builds for x86 with AVX2 draw them",
)

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 32, 100, 799, 800, 801, 5000, 40_003)


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    with ox.random.torch_compatible(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def bits(x: Any) -> Any:
    """As integers, so that -0.0 is not 0.0; bfloat16 by way of float32, which holds it."""
    x = x.detach()
    array = np.asarray(x.float().numpy() if "bfloat16" in str(x.dtype) else x.numpy())
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "f" else array


def assert_same(got: Any, expected: Any) -> None:
    assert str(got.dtype) == str(expected.dtype).removeprefix("torch.")
    assert tuple(got.shape) == tuple(expected.shape)
    ours, theirs = bits(got), bits(expected)
    if ours.dtype == np.uint64 and machine.instruction_set() == "AVX-512":
        # NumPy has logarithms and trigonometric functions of float64 of its own there
        np.testing.assert_allclose(ours.view(np.float64), theirs.view(np.float64), rtol=1e-12, atol=1e-12)
        return
    np.testing.assert_array_equal(ours, theirs)


def both(draw: Callable[[Any], Any], seed: int = 5) -> tuple[Any, Any]:
    """What each library draws, and then the state of its default generator, which must be PyTorch's."""
    made = []
    for T in (ox, torch):
        T.manual_seed(seed)
        made.append(draw(T))
    np.testing.assert_array_equal(ox.get_rng_state().numpy(), torch.get_rng_state().numpy())
    return made[0], made[1]


def check(draw: Callable[[Any], Any], seed: int = 5) -> None:
    assert_same(*both(draw, seed))


# -- single draws --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("seed", [0, 1, 2**31, -3, 2**40 + 5])
def test_floats_of_all_sizes_one_after_the_other(dtype: str, seed: int) -> None:
    def draw(T: Any) -> Any:
        kind = getattr(T, dtype)
        parts = []
        for size in SIZES:
            parts += [T.rand(size, dtype=kind), T.randn(size, dtype=kind), T.rand(3, dtype=kind)]
            parts += [T.empty(size, dtype=kind).uniform_(-0.3, 0.77), T.empty(size, dtype=kind).normal_(0.3, 1.7)]
        return T.cat(parts)

    check(draw, seed)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "fill",
    [
        "exponential_(1.3)",
        "cauchy_(0.1, 1.3)",
        "geometric_(0.1)",
        "log_normal_(0.1, 0.7)",
        "bernoulli_(0.3)",
        "random_()",
        "random_(3, 9)",
        "random_(7)",
    ],
)
def test_fillers(dtype: str, fill: str) -> None:
    for size in (0, 1, 15, 16, 1000):
        check(lambda T, size=size: eval(f"x.{fill}", {"x": T.empty(size, dtype=getattr(T, dtype))}))


WHOLE = ("bool", "uint8", "int8", "int16", "int32", "int64")


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_of_a_type(dtype: str) -> None:
    check(lambda T: T.empty(500, dtype=getattr(T, dtype)).random_())


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (0, 10), (-5, 7), (0, 2**28 - 1), (0, 2**28), (0, 2**32 + 1), (-(2**40), 2**50), (-(2**63), 2**63 - 1)],
)
def test_ranges(low: int, high: int) -> None:
    check(lambda T: T.randint(low, high, (300,)))
    if high < 2**24:
        check(lambda T: T.randint(low, high, (300,), dtype=T.float32))
        check(lambda T: T.randint_like(T.zeros(3, 4).t(), low, high))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 100, 5000])
def test_orders(n: int) -> None:
    check(lambda T: T.cat([T.randperm(n), T.randperm(n, dtype=T.int32).long()]))


LAYOUTS = [
    "T.zeros(4, 6)",
    "T.zeros(4, 6).t()",
    "T.zeros(2, 3, 4).permute(2, 0, 1)",
    "T.zeros(8, 9)[:, ::2]",
    "T.zeros(5, 1, 7).transpose(0, 2)",
    "T.zeros(40, 3).t()[1:]",
    "T.zeros(())",
    "T.zeros(3, 0, 2)",
]
LIKE = [
    "T.rand_like(x)",
    "T.randn_like(x)",
    "x.normal_()",
    "x.uniform_(-1, 1)",
    "x.bernoulli_(0.4)",
    "x.exponential_()",
    "T.bernoulli(x + 0.4)",
    "T.bernoulli(x, 0.4)",
    "F.dropout(x + 1, 0.3)",
    "T.poisson(x + 12)",
    "T.poisson(x + 2)",
    "T.rand_like(x, memory_format=T.contiguous_format)",
    "T.rand_like(T.rand_like(x))",
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", LIKE)
def test_tensors_are_filled_as_they_lie_in_memory(layout: str, call: str) -> None:
    check(lambda T: eval(call, {"T": T, "F": T.nn.functional, "x": eval(layout, {"T": T})}))


CALLS = [
    "T.normal(0.5, 2.0, (20,))",
    "T.normal(T.rand(20), T.rand(20))",
    "T.normal(T.rand(20), 1.7)",
    "T.normal(0.3, T.rand(20))",
    "T.multinomial(T.rand(5, 9), 3)",
    "T.multinomial(T.rand(9), 30, True)",
    "T.multinomial(T.rand(9), 1)",
    "T.multinomial(T.rand(9, 4).t(), 3)",
    "T.multinomial(T.rand(5, 9, dtype=T.float64), 9)",
    "F.dropout(T.rand(10_000), 0.3)",
    "F.dropout(T.rand(100), 1.0)",
    "F.dropout(T.rand(100), 0.0)",
    "F.dropout1d(T.rand(5, 6, 7))",
    "F.dropout1d(T.rand(6, 7))",
    "F.dropout2d(T.rand(5, 6, 7, 8))",
    "F.dropout3d(T.rand(2, 6, 3, 4, 2))",
    "F.dropout(T.rand(50, dtype=T.float64), 0.7)",
    "F.dropout(T.rand(50, dtype=T.float16), 0.7)",
    "F.alpha_dropout(T.rand(100), 0.4, True)",
    "F.feature_alpha_dropout(T.rand(10, 9, 3), 0.4, True)",
    "nn.Dropout(0.2)(T.rand(30))",
    "nn.Dropout1d()(T.rand(3, 4, 5))",
    "nn.Dropout2d()(T.rand(3, 4, 5, 6))",
    "nn.Dropout3d()(T.rand(3, 4, 5, 6, 2))",
    "nn.AlphaDropout()(T.rand(30))",
    "nn.FeatureAlphaDropout()(T.rand(3, 4, 5))",
    "F.fractional_max_pool2d(T.rand(2, 3, 9, 9), 2, output_size=4)",
    "F.fractional_max_pool3d(T.rand(2, 3, 9, 9, 9), 2, output_size=4)",
    "nn.init.trunc_normal_(T.zeros(50))",
    "nn.init.trunc_normal_(T.zeros(500), std=0.02)",
    "nn.init.trunc_normal_(T.zeros(500), 0.0, 1.0, 2.0, 3.0)",
    "nn.init.trunc_normal_(T.zeros(50, dtype=T.float64), 3.0, 1.0, 0.0, 1.0)",
    "nn.init.sparse_(T.zeros(10, 7), 0.3)",
    "nn.init.xavier_uniform_(T.zeros(10, 7), 1.4)",
    "nn.init.xavier_normal_(T.zeros(10, 7))",
    "nn.init.kaiming_normal_(T.zeros(10, 7, 3, 3))",
    "nn.init.kaiming_uniform_(T.zeros(10, 7, 3), mode='fan_out', nonlinearity='relu')",
    "nn.init.uniform_(T.zeros(20))",
    "nn.init.normal_(T.zeros(20, dtype=T.float64), 1.0, 0.1)",
    "D.Normal(T.rand(3), T.rand(3)).sample((20,))",
    "D.Normal(T.rand(3), T.rand(3)).rsample((20,))",
    "D.Uniform(T.rand(3), T.rand(3) + 1).sample((20,))",
    "D.Exponential(T.rand(3)).sample((20,))",
    "D.Bernoulli(T.rand(3)).sample((20,))",
    "D.Categorical(T.rand(3)).sample((20,))",
    "D.MultivariateNormal(T.rand(3), T.eye(3)).sample((20,))",
]


@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str) -> None:
    check(lambda T: eval(call, {"T": T, "F": T.nn.functional, "nn": T.nn, "D": T.distributions}))


BEHIND = [
    "x",
    "x.softmax(-1)",
    "F.log_softmax(x, 1)",
    "F.layer_norm(x, (x.shape[-1],))",
    "T.cat([x, x], 1)",
    "T.stack([x, x])",
    "F.batch_norm(x, None, None, training=True)",
    "F.group_norm(x, 1)",
    "F.instance_norm(x)",
    "F.relu(x)",
    "x * 2",
    "-x",
    "x[:, 1:]",
    "F.linear(x, T.ones(3, x.shape[-1]))",
    "x @ x.transpose(1, 2)",
    "F.conv1d(x, T.ones(3, x.shape[1], 2))",
    "x.reshape(-1)",
    "x.contiguous()",
    "T.einsum('abc->acb', x)",
    "x.chunk(2, -1)[0]",
    "F.normalize(x, dim=-1)",
]


@pytest.mark.parametrize("shape", [(2, 6, 5), (8, 64, 300)], ids=str)
@pytest.mark.parametrize("call", BEHIND)
def test_a_dropout_behind_operators_on_a_transposed_tensor(call: str, shape: tuple[int, ...]) -> None:
    def dropped(T: Any) -> Any:
        x = T.randn(*shape).transpose(1, 2)
        y = eval(call, {"T": T, "F": T.nn.functional, "x": x})
        return (T.nn.functional.dropout(y, 0.5) == 0) | (y == 0)

    check(dropped)


# Where a logarithm, an exponential or a QR decomposition follows, whose last bits are each library's own.
NEAR = [
    ("F.rrelu(T.randn(100), training=True)", 3e-7),
    ("F.gumbel_softmax(T.randn(5, 20))", 3e-6),
    ("F.gumbel_softmax(T.randn(5, 20), hard=True)", 0),
    ("D.Laplace(T.rand(3), T.rand(3)).sample((20,))", 3e-7),
    ("D.LogNormal(T.rand(3), T.rand(3)).sample((20,))", 3e-7),
    ("nn.init.orthogonal_(T.zeros(10, 7))", 3e-6),
    ("nn.init.orthogonal_(T.zeros(7, 5, 4))", 3e-6),
    ("nn.init.orthogonal_(T.zeros(7, 10, dtype=T.float64))", 1e-14),
]


@pytest.mark.parametrize(("call", "rtol"), NEAR)
def test_calls_that_end_in_other_arithmetic(call: str, rtol: float) -> None:
    got, expected = both(lambda T: eval(call, {"T": T, "F": T.nn.functional, "nn": T.nn, "D": T.distributions}))
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("threads", [1, 2])
def test_dropout_does_not_depend_on_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(lambda T: T.nn.functional.dropout(T.ones(300_000), 0.3))
    finally:
        torch.set_num_threads(before)


# -- generators and states -----------------------------------------------------------------------------------------


def test_a_generator_of_its_own() -> None:
    def draw(T: Any) -> Any:
        g = T.Generator().manual_seed(9)
        parts = [T.rand(5, generator=g), T.randn(3, generator=g), T.empty(20).normal_(generator=g)]
        parts += [T.randperm(7, generator=g).float(), T.randint(0, 9, (4,), generator=g).float(), T.rand(2)]
        parts += [
            T.bernoulli(T.full((6,), 0.5), generator=g),
            T.rand(2, generator=g.clone_state()),
            T.rand(2, generator=g),
        ]
        return T.cat(parts)

    check(draw)


def test_states_go_both_ways() -> None:
    torch.manual_seed(3)
    torch.randn(5)  # leaves the second of a pair behind
    state = torch.get_rng_state()
    ox.set_rng_state(ox.tensor(state.numpy()))
    assert_same(ox.randn(9), torch.randn(9))
    torch.set_rng_state(torch.from_numpy(ox.get_rng_state().numpy()))
    assert_same(ox.rand(700), torch.rand(700))
    assert ox.initial_seed() == torch.initial_seed() == 3


def test_a_state_again_and_a_fork() -> None:
    def draw(T: Any) -> Any:
        T.randn(3)
        state = T.get_rng_state()
        parts = [T.randn(5)]
        with T.random.fork_rng():
            parts.append(T.rand(4))
            T.manual_seed(8)
            parts.append(T.rand(4))
        parts.append(T.randn(6))
        T.set_rng_state(state)
        return T.cat([*parts, T.randn(5)])

    check(draw)


# -- layers --------------------------------------------------------------------------------------------------------

LAYERS: dict[str, tuple[Any, ...]] = {
    "AdaptiveLogSoftmaxWithLoss": (16, 100, [10, 50]),
    "BatchNorm1d": (4,),
    "BatchNorm2d": (4,),
    "BatchNorm3d": (4,),
    "Bilinear": (3, 4, 5),
    "Conv1d": (3, 4, 3),
    "Conv2d": (4, 6, 3, 1, 1, 1, 2),
    "Conv3d": (3, 4, 3),
    "ConvTranspose1d": (3, 4, 3),
    "ConvTranspose2d": (3, 4, 3),
    "ConvTranspose3d": (3, 4, 3),
    "Embedding": (10, 4, 2),
    "EmbeddingBag": (10, 4),
    "GRU": (3, 5, 1),
    "GRUCell": (3, 5),
    "GroupNorm": (2, 4),
    "InstanceNorm1d": (4, 1e-5, 0.1, True),
    "InstanceNorm2d": (4, 1e-5, 0.1, True),
    "InstanceNorm3d": (4, 1e-5, 0.1, True),
    "LSTM": (3, 5, 2, True, False, 0.0, True, 2),
    "LSTMCell": (3, 5),
    "LayerNorm": (4,),
    "Linear": (3, 5),
    "MultiheadAttention": (8, 2),
    "PReLU": (3,),
    "RMSNorm": (4,),
    "RNN": (3, 5, 2),
    "RNNCell": (3, 5),
    "SyncBatchNorm": (4,),
    "Transformer": (8, 2, 2, 2, 16),
    "TransformerDecoderLayer": (8, 2, 16),
    "TransformerEncoderLayer": (8, 2, 16),
}
BASES = {"RNNBase", "RNNCellBase"}


def assert_equal_states(got: Any, expected: Any) -> None:
    ours, theirs = got.state_dict(), expected.state_dict()
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name].numpy(), value.numpy(), err_msg=name)


def test_every_layer_that_draws_is_in_the_table() -> None:
    kinds = {name: each for name, each in vars(torch.nn).items() if inspect.isclass(each)}
    drawing = {
        n for n, kind in kinds.items() if hasattr(kind, "reset_parameters") or hasattr(kind, "_reset_parameters")
    }
    lazy = {name for name in drawing if name.startswith("Lazy")}
    assert drawing - lazy - BASES <= set(LAYERS)
    assert {name.removeprefix("Lazy") for name in lazy} <= set(LAYERS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_begins_as_in_pytorch(name: str, dtype: str) -> None:
    def build(T: Any) -> Any:
        return getattr(T.nn, name)(*LAYERS[name], dtype=getattr(T, dtype))

    got, expected = both(build)
    assert_equal_states(got, expected)
    again = "reset_parameters" if hasattr(expected, "reset_parameters") else "_reset_parameters"
    if hasattr(expected, again):
        both(lambda T: getattr(expected if T is torch else got, again)())
        assert_equal_states(got, expected)


BUILT = [
    "nn.MultiheadAttention(8, 2, add_bias_kv=True, kdim=4, vdim=6)",
    "nn.MultiheadAttention(8, 2, bias=False)",
    "nn.utils.spectral_norm(nn.Linear(4, 5))",
    "nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))",
    "nn.Conv2d(3, 4, (3, 1), bias=False)",
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3)",
    "run(nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(5)), T.zeros(2, 3, 6, 6))",
    "run(nn.Sequential(nn.LazyConvTranspose2d(4, 3), nn.LazyConv2d(2, 1)), T.zeros(2, 3, 6, 6))",
    "prune.random_unstructured(nn.Linear(4, 5), 'weight', 0.4)",
    "prune.random_structured(nn.Linear(4, 5), 'weight', 2, 0)",
    "nn.utils.skip_init(nn.Linear, 4, 5) and nn.Linear(1, 2)",
]


@pytest.mark.parametrize("text", BUILT)
def test_other_ways_to_build(text: str) -> None:

    def prune(T: Any) -> Any:
        return importlib.import_module(f"{T.__name__}.nn.utils.prune")

    def run(model: Any, x: Any) -> Any:
        model(x)
        return model

    got, expected = both(lambda T: eval(text, {"T": T, "nn": T.nn, "run": run, "prune": prune(T)}))
    assert_equal_states(got, expected)
