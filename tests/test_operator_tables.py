"""Facts of operators stand on their definitions: a list of operator names elsewhere has its reason here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from rows import rows

import ox  # noqa: F401  # its import defines the operators
from ox.core.operator import OPS

ROOT = Path(__file__).resolve().parents[1]
NAMES = {name.removeprefix("ox.") for name in OPS}
FUNCTIONS = "code for each operator: a table of functions"
RUNTIME = "what one runtime has kernels for, as measured"
# By the file and the name of a table.
REASONS = {
    # beside kernels
    "compiled.py KERNELS": FUNCTIONS,
    "compiled.py OF_BFLOAT16": "which of the kernels beside it take bfloat16",
    "cuda_operators.py KERNELS": FUNCTIONS,
    "cuda_operators.py HOST_NUMBERS": "which of the kernels beside it take numbers of the host",
    "dispatch_table.py ALLOWED": FUNCTIONS,
    "half_precision.py EXACT": "which of the offers beside it round nothing",
    "recorder.py RECORDABLE": "which compiled kernels look at no numbers in arrays",
    "recorder.py STRIDED": "which compiled kernels read arrays that are not row-major",
    "regions.py ROW_INSTRUCTIONS": "the instructions of the kernels",
    # code for each operator
    "known_defects.py ONNXRUNTIME": FUNCTIONS,
    "known_defects.py OPENVINO": FUNCTIONS,
    "batching_rules.py OPERATOR_RULES": FUNCTIONS,
    "algebra.py RULES": FUNCTIONS,
    "symbolic_rules.py RULES": FUNCTIONS,
    "version_converter.py ADAPTERS": FUNCTIONS,
    "older_opsets.py FORMS": FUNCTIONS,
    "flops.py COUNTS": FUNCTIONS,
    "elementwise.py ARITHMETIC": FUNCTIONS,
    "fold_batch_norm.py PRODUCTS": "the layouts of weights that the function below knows",
    # of other runtimes and formats
    "float16.py FLOAT32_ALONE": RUNTIME,
    "integers.py CALIBRATED": RUNTIME,
    "schemes.py SCHEMES": RUNTIME,
    "workarounds.py _MOVES": RUNTIME,
    "runtime_bodies.py ACTIVATIONS": "the activations that ONNX Runtime's fused operators name",
    "tree_bodies.py COMPARISONS": "the comparisons that ai.onnx.ml names",
    "shape_data.py CARRYING": "the operators of onnx that somebody has looked at; its test compares them with onnx",
    # of the server
    "operator_kinds.py KINDS": "generated from the definitions",
    "operator_kinds.py SIZED_BY": "generated from the definitions",
    "decoder_graph.py HEAD": "products whose rows follow from rows of the first input, with those of ONNX Runtime",
    "endless_loops.py THROUGH": "what a number can go through and not grow, with the inputs that it comes from",
    "node_graph.py FROM_SIZES": "what passes on the NaN that stands for a size that is not known",
}


def tables(text: str) -> Iterator[str]:
    """The names of module-level tables of which at least three strings, and at least half, name operators."""
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        strings = {
            word.removeprefix("ox.")
            for each in ast.walk(statement.value)
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
            for word in each.value.split()
        }
        named = strings & NAMES
        if len(named) >= 3 and 2 * len(named) >= len(strings) and ast.unparse(target) != "__all__":
            yield ast.unparse(target)


def test_a_list_of_operators_has_a_reason() -> None:
    files = [path for path in (ROOT / "ox").rglob("*.py") if "ops" not in path.relative_to(ROOT).parts]
    there = {f"{path.name} {name}" for path in files for name in tables(path.read_text())}
    assert not there - set(REASONS), "ask the definitions (ox.core.operator.kind_of, moves), or give a reason here"
    assert not set(REASONS) - there, "these are gone"


FORMS = {
    'MOVES = {"Tile", "Reshape", "Slice"}': ["MOVES"],
    'MOVES: frozenset[str] = frozenset("Tile Reshape Slice".split())': ["MOVES"],
    'RULES = {"ox.Silu": 1, "Relu": 2, "Add": 3}': ["RULES"],
    'TWO = ("Tile", "Reshape")': [],
    'WORDS = ("Tile", "Reshape", "Slice", "and", "other", "words", "still")': [],
    '__all__ = ["GRU", "LSTM", "RNN"]': [],
}


@rows("text", FORMS)
def test_lists_of_all_forms_are_seen(text: str) -> None:
    assert list(tables(text)) == FORMS[text]
