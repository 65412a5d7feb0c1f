"""Every operator has its facts: on its definition, in a table of the floor that asks, or by a default that is stated
here for a family or a name, with its reason. A new operator fails here until each of them is answered.

A fact that ONNX's schema or a run tells is not stated twice: the tests hold the two together.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from onnx import defs
from onnx.helper import get_attribute_value
from rows import rows
from samples import samples

from ox.amp.policy import ELIGIBLE, RULES
from ox.core.kind import WHOLE
from ox.core.operator import OPS, Operator, operator
from ox.core.subgraph import Control
from ox.core.types import XP, T
from ox.devices import half_precision
from ox.devices.onnxruntime import dispatch_table
from ox.dtypes import FLOATS, float32
from ox.func.batching_rules import FAMILIES, OPERATOR_RULES, rule_of
from ox.graph.reader.version_converter import ADAPTERS
from ox.graph.writer import workarounds
from ox.ops.control.sequence import OfSequences
from ox.profiler.flops import COUNTS
from ox.tensors.tensor import make_tensor

Predicate = Callable[[Operator], bool]


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def takes(op: Operator, types: frozenset[np.dtype]) -> bool:
    """Whether an input that is data may have one of these types."""
    return any(types & set(op.schema.allowed(i.type)) for i in op.schema.inputs if not i.host)


def broadcasts_or_moves(op: Operator) -> bool:
    return op.batching in ("pointwise", "reduction", "arg_reduction", "cumulative", "reshape", "elements", "shared")


PLACING = ("conversion", "padding", "scatter", "sorting", "index")

# -- defaults: by family -------------------------------------------------------------------------------------------

FAMILY: dict[str, dict[str, Predicate]] = {
    "kind": {},
    "amp": {"there is nothing to cast": lambda op: not takes(op, ELIGIBLE)},
    "batching": {"a recording holds its body": lambda op: op.fused},
    "weights": {
        "a file holds its body": lambda op: op.domain == "ox",
        "its inputs are data, or places": broadcasts_or_moves,
        "it has one input": lambda op: sum(not i.host for i in op.schema.inputs) == 1,
        "it places or picks data": lambda op: op.moves or op.kind in PLACING,
        "its other inputs are images, masks, scales, windows and settings": lambda op: (
            op.kind in ("image", "attention", "loss", "quantization", "integer_product", "signal", "creation")
        ),
        "it has none of floats": lambda op: not takes(op, frozenset(FLOATS)),
        "a list of tensors, or a body of its own": lambda op: isinstance(op, Control | OfSequences),
        "it draws": lambda op: op.random,
    },
    "onnxruntime": {
        "it has a kernel for large arrays of its own, or its body": lambda op: op.domain == "ox",
        "NumPy makes a view": lambda op: op.view,
        "it moves or counts, and NumPy does that as fast": lambda op: (
            op.moves or op.kind in (*PLACING, "size", "creation")
        ),
        "not measured: its use is rare in eager float32": lambda op: (
            op.kind in ("cumulative", "factorization", "attention", "signal", "loss", "quantization", "integer_product")
        ),
        "float32 alone was worth it": lambda op: not takes(op, frozenset((float32,))),
        "what is inside is called": lambda op: isinstance(op, Control | OfSequences),
        "it draws": lambda op: op.random,
    },
    "flops": {
        "a few an element: memory is what takes the time": lambda op: (
            broadcasts_or_moves(op)
            or op.kind in ("pointwise", "normalization", "pooling", "loss", "quantization", "cumulative", "statistics")
        ),
        "none: it moves, places or sorts": lambda op: op.moves or op.kind in (*PLACING, "check"),
        "not counted: factors of matrices": lambda op: op.kind == "factorization",
        "none: it moves, makes or compares": lambda op: op.view or not takes(op, frozenset(FLOATS)) or op.random,
        "what is inside is counted": lambda op: isinstance(op, Control | OfSequences),
    },
}

# -- defaults: by name ---------------------------------------------------------------------------------------------

NAMED: dict[str, dict[str, frozenset[str]]] = {
    "weights": {"an activation": names("SwiGLU")},
    "onnxruntime": {
        "measured: NumPy was as fast at every size": names("Neg Abs Sqrt Log Pow Div Min Max"),
        "it moves or counts, and NumPy does that as fast": names("BitCast ArgMax ArgMin Col2Im MaxUnpool"),
        "a call is a call of what replaced it": names("Upsample"),
        "it adds one number after the other, and rounds as often": names(
            "ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceSumSquare GlobalAveragePool"
        ),
        "not measured: its use is rare in eager float32": names(
            """
            IsNaN IsInf Sign Reciprocal Sum Mean Mod ReduceProd ReduceLogSum ReduceLogSumExp Hardmax Floor Ceil Round
            Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Softplus Mish Swish SwiGLU PRelu Shrink Elu Selu Celu
            LpPool GlobalMaxPool GlobalLpPool AffineGrid InstanceNormalization GroupNormalization LpNormalization LRN
            MeanVarianceNormalization RMSNormalization CausalConvWithState DeformConv NonMaxSuppression RoiAlign
            MaxRoiPool
            """
        ),
    },
    "flops": {
        "a few an element: memory is what takes the time": names(
            """
            AffineGrid RotaryEmbedding ox.AveragePoolGradient ox.BatchNormalizationGradient ox.CrossEntropyGradient
            ox.GroupNormalizationGradient ox.LayerNormalizationGradient ox.LogSoftmaxGradient ox.PhiloxDropout
            ox.RMSNormalizationGradient ox.SmoothedCrossEntropyGradient ox.SoftCrossEntropyGradient ox.SoftmaxGradient
            ox.WeightedCrossEntropyGradient
            """
        ),
        "none: it moves, places or sorts": names("Col2Im MaxUnpool NonMaxSuppression ox.MaxPoolGradient"),
        "not counted: sums of products, of layers that are rarely measured": names(
            """
            Attention LinearAttention CausalConvWithState DeformConv DFT STFT GridSample Resize Upsample RoiAlign
            MaxRoiPool QLinearConv QLinearMatMul
            """
        ),
    },
}

# -- what says it --------------------------------------------------------------------------------------------------

STATED: dict[str, Callable[[str, Operator], bool]] = {
    "kind": lambda name, op: op.kind is not None,
    "amp": lambda name, op: op.amp in RULES,
    "batching": lambda name, op: op.batching == "each" or rule_of(name) is not None,
    "weights": lambda name, op: bool(op.weights),
    "onnxruntime": lambda name, op: name in dispatch_table.ALLOWED,
    "flops": lambda name, op: name in COUNTS,
}


def unstated(fact: str, name: str) -> bool:
    """Whether nothing says this fact of an operator."""
    op = OPS[name]
    by_name = any(name in group for group in NAMED.get(fact, {}).values())
    return not (STATED[fact](name, op) or by_name or any(holds(op) for holds in FAMILY[fact].values()))


@rows("fact", STATED)
def test_every_operator_has_the_fact(fact: str) -> None:
    missing = [name for name in OPS if unstated(fact, name)]
    assert not missing, f"say '{fact}' of {' '.join(missing)}: on the definition, in its table, or here with a reason"


@pytest.mark.parametrize("fact", NAMED)
def test_no_default_is_stale(fact: str) -> None:
    """A name that stands here is an operator, has no entry, belongs to no family, and stands here once."""
    groups = [name for group in NAMED[fact].values() for name in group]
    assert len(groups) == len(set(groups))
    assert not [name for name in groups if name not in OPS or STATED[fact](name, OPS[name])]
    assert not [name for name in groups if any(holds(OPS[name]) for holds in FAMILY[fact].values())]


def test_tables_name_operators_that_are_there() -> None:
    assert set(OPERATOR_RULES) == {name for name, op in OPS.items() if op.batching == "own"}
    assert {op.batching for op in OPS.values() if op.batching} == {*FAMILIES, "own", "each"}
    assert set(dispatch_table.ALLOWED) | set(COUNTS) | workarounds._MOVES <= set(OPS)
    for op in OPS.values():
        assert set(op.weights) <= {i.name for i in op.schema.inputs}
        assert set(op.sized_by) <= {i.name for i in op.schema.inputs if i.host}


def test_only_offers_round_in_half_precision() -> None:
    """What is not in EXACT is rounded once, which is right for every operator: EXACT spares offers the conversion."""
    assert set(dispatch_table.ALLOWED) >= half_precision.EXACT


@pytest.fixture
def newcomer() -> Iterator[str]:
    @operator("Y", T=FLOATS)
    def Newcomer(xp: XP, X: T, W: T) -> T:
        return X * W

    yield "Newcomer"
    del OPS["Newcomer"]


@pytest.mark.parametrize("fact", STATED)
def test_a_new_operator_without_facts_is_found(fact: str, newcomer: str) -> None:
    assert unstated(fact, newcomer)


# -- facts that a schema or a run tells ----------------------------------------------------------------------------


def test_what_has_a_seed_is_random() -> None:
    by_seed = {name for name, op in OPS.items() if "seed" in op.schema.attributes}
    assert by_seed == {name for name, op in OPS.items() if op.random}


def test_what_trains_differently_is_known_to_loaded_files() -> None:
    """`ox.onnx_module.loaded` switches the training mode of these two; an operator with one needs a line there."""
    modes = {
        name
        for name, op in OPS.items()
        if "training_mode" in op.schema.attributes or any(i.name == "training_mode" for i in op.schema.inputs)
    }
    assert modes == {"BatchNormalization", "Dropout"}


def shapes_differ(name: str) -> list[str]:
    """The samples whose outputs have other sizes where floats and bools are 0."""
    op, differ = OPS[name], []
    for sample in samples(name)[:6]:
        zeros = [
            x if x is None or op.schema.input_at(i).host or x.dtype.kind not in "fb" else np.zeros_like(x)
            for i, x in enumerate(sample.inputs)
        ]
        shapes = []
        for given in (sample.inputs, zeros):
            tensors = [None if x is None else make_tensor(x) for x in given]
            with np.errstate(all="ignore"):
                result = op(*tensors, outputs=sample.outputs, **sample.attributes)
            shapes.append([y.array.shape for y in (result if isinstance(result, tuple) else (result,))])
        if shapes[0] != shapes[1]:
            differ.append(sample.name)
    return differ


CALLED = [name for name, op in OPS.items() if not isinstance(op, Control | OfSequences)]
MOVING = [name for name in CALLED if OPS[name].moves or OPS[name].kind == "padding"]


@rows("name", MOVING, items=2)
def test_what_moves_values_computes_none(name: str) -> None:
    """In its results are values of the inputs; for some kinds all of them, or in the same order."""
    op = OPS[name]
    for sample in samples(name):
        inputs = [*sample.inputs]
        if op.kind == "padding":
            inputs[0] = np.ones_like(inputs[0])  # beside the zeros that fill up
        result = op(
            *(None if x is None else make_tensor(x) for x in inputs), outputs=sample.outputs, **sample.attributes
        )
        moved = [y.array for y in (result if isinstance(result, tuple) else (result,))]
        sources = inputs if op.kind == "concatenation" else inputs[:1]
        there, given = (set().union(*(bits(x) for x in arrays)) for arrays in (moved, sources))
        if op.kind == "padding":
            given |= set().union(*(bits(x) for x in (np.zeros(1, sources[0].dtype), *inputs[2:3]) if x is not None))
        assert there <= given
        if op.kind in WHOLE and moved[0].size:
            assert there == given
        if op.kind in ("identity", "reshape"):
            assert moved[0].tobytes() == sources[0].tobytes()


def bits(array: np.ndarray) -> set[bytes]:
    """The bytes of each element."""
    size = array.dtype.itemsize
    raw = np.ascontiguousarray(array).tobytes()
    return {raw[i : i + size] for i in range(0, len(raw), size)}


@rows("name", [name for name, op in OPS.items() if op.commutative])
def test_what_is_commutative_gives_the_same_bits_in_either_order(name: str) -> None:
    for sample in samples(name):
        a, b = map(make_tensor, sample.inputs)
        assert bytes(OPS[name](a, b).array) == bytes(OPS[name](b, a).array)


@rows("name", CALLED, items=2)
def test_sizes_follow_from_sizes(name: str) -> None:
    """Other values of the same sizes give the same sizes, unless the definition says data_dependent_shape."""
    assert OPS[name].data_dependent_shape or not shapes_differ(name)


def test_sizes_that_follow_from_values_are_found() -> None:
    assert all(shapes_differ(name) for name in ("NonZero", "Compress", "Unique"))


def changes(name: str) -> int:
    """The last opset from 7 on whose form of an operator the newest one does not read: an attribute or an output is
    gone, a default is another, an input is new that must be there. 0 where there is none."""
    newest = defs.get_schema(name)
    found = 0
    for old in defs.get_all_schemas_with_history():
        if old.name != name or old.domain or defs.get_schema(name, max(old.since_version, 7)) != old:
            continue
        gone = [a for a in old.attributes if a not in newest.attributes]
        moved = [a for a in old.attributes if a not in gone and default(old, a) != default(newest, a)]
        wanted = [i for i in newest.inputs[len(old.inputs) :] if i.option == defs.OpSchema.FormalParameterOption.Single]
        if gone or moved or wanted or len(old.inputs) > len(newest.inputs) or len(old.outputs) > len(newest.outputs):
            found = max(found, old.since_version)
    return found


def default(schema: defs.OpSchema, attribute: str) -> object:
    value = schema.attributes[attribute].default_value
    return get_attribute_value(value) if value.name else None


@rows("name", [name for name, op in OPS.items() if not op.domain])
def test_every_old_form_is_lifted(name: str) -> None:
    first = ADAPTERS[name][-1][0] if name in ADAPTERS else 0
    assert changes(name) < first or not changes(name), f"{name} of opset {changes(name)} needs an adapter"


@rows("name", [name for name, op in OPS.items() if op.contraction])
def test_a_contraction_brings_no_values_further_apart(name: str) -> None:
    random = np.random.default_rng(0)
    for sample in samples(name):
        x, *others = sample.inputs
        if x.dtype.kind != "f" or sample.outputs > 1:
            continue
        near = (x + random.uniform(-1, 1, x.shape)).astype(x.dtype)
        rest = [None if each is None else make_tensor(each) for each in others]
        a, b = (OPS[name](make_tensor(each), *rest, **sample.attributes).array for each in (x, near))
        assert np.abs(a.astype(float) - b).max(initial=0) <= np.abs(x.astype(float) - near).max(initial=0) * (1 + 1e-5)
