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
# By the path of the file in ox/ and the name of the table.
REASONS = {
    # beside kernels
    "devices/cpu_kernels/kernel_table.py KERNELS": FUNCTIONS,
    "devices/cpu_kernels/kernel_table.py OF_BFLOAT16": "which of the kernels beside it take bfloat16",
    "devices/gpu/kernel_table.py KERNELS": FUNCTIONS,
    "devices/gpu/kernel_table.py HOST_NUMBERS": "which of the kernels beside it take numbers of the host",
    "devices/onnxruntime/dispatch_table.py ALLOWED": FUNCTIONS,
    "devices/half_precision.py EXACT": "which of the offers beside it round nothing",
    "engines/native/recorder.py RECORDABLE": "which compiled kernels look at no numbers in arrays",
    "engines/native/recorder.py STRIDED": "which compiled kernels read arrays that are not row-major",
    "engines/native/regions.py ROW_INSTRUCTIONS": "the instructions of the kernels",
    # code for each operator
    "engines/known_defects.py ONNXRUNTIME": FUNCTIONS,
    "engines/known_defects.py OPENVINO": FUNCTIONS,
    "func/batching_rules.py OPERATOR_RULES": FUNCTIONS,
    "graph/passes/algebra.py RULES": FUNCTIONS,
    "graph/passes/symbolic_rules.py RULES": FUNCTIONS,
    "graph/reader/version_converter.py ADAPTERS": FUNCTIONS,
    "graph/writer/older_opsets.py FORMS": FUNCTIONS,
    "profiler/flops.py COUNTS": FUNCTIONS,
    "serve/runtime/row_independence/elementwise.py ARITHMETIC": FUNCTIONS,
    "graph/passes/fold_batch_norm.py PRODUCTS": "the layouts of weights that the function below knows",
    # of other runtimes and formats
    "export/quantization/float16.py FLOAT32_ALONE": RUNTIME,
    "export/quantization/integers.py CALIBRATED": RUNTIME,
    "export/quantization/schemes.py SCHEMES": RUNTIME,
    "graph/writer/workarounds.py _MOVES": RUNTIME,
    "graph/reader/runtime_bodies.py ACTIVATIONS": "the activations that ONNX Runtime's fused operators name",
    "graph/reader/tree_bodies.py COMPARISONS": "the comparisons that ai.onnx.ml names",
    "serve/runtime/shape_data.py CARRYING": "operators that were checked one by one; its test compares them with onnx",
    # of the server
    "serve/operator_kinds.py KINDS": "generated from the definitions",
    "serve/operator_kinds.py SIZED_BY": "generated from the definitions",
    "serve/runtime/decoder_graph.py HEAD": "products whose rows follow from rows of the first input",
    "serve/runtime/endless_loops.py THROUGH": "what a number passes without growing, and from which inputs",
    "serve/runtime/node_graph.py FROM_SIZES": "what passes on the NaN that stands for a size that is not known",
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
    there = {
        f"{path.relative_to(ROOT / 'ox').as_posix()} {name}" for path in files for name in tables(path.read_text())
    }
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
