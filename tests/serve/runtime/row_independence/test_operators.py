"""Every operator has a rule, or a reason why it has none."""

from __future__ import annotations

from onnx import defs
from rows import rows

from ox.core.operator import OPS
from ox.serve.runtime.row_independence.control import JUDGED
from ox.serve.runtime.row_independence.node import (
    ALWAYS_REFUSED,
    CONTRIB,
    COUNTING,
    ML,
    ONNX,
    REFUSED,
    ROW_NUMBERED,
    RULES,
)

OPERATORS = sorted({(schema.domain, schema.name) for schema in defs.get_all_schemas() if schema.domain in (ONNX, ML)})


@rows("key", OPERATORS, ids=[f"{domain}:{name}" for domain, name in OPERATORS])
def test_a_rule_or_a_refusal(key: tuple[str, str]) -> None:
    assert (key in RULES) != (key in REFUSED), f"{key} needs a rule, or a reason in refusals.py"


def test_nothing_else_is_entered() -> None:
    """No typing errors: whatever has an entry exists. com.microsoft's are not in onnx."""
    # One that ONNX Runtime's optimizer writes without a domain.
    known = {*OPERATORS, (ONNX, "SimplifiedLayerNormalization")}
    entered = {*RULES, *REFUSED, *ALWAYS_REFUSED, *COUNTING, *ROW_NUMBERED}
    assert {key for key in entered if key[0] != CONTRIB} <= known
    assert all(REFUSED.values()) and set(REFUSED) >= ALWAYS_REFUSED
    assert {(ONNX, name) for name in JUDGED} <= set(RULES)


def test_our_own_operators_are_known() -> None:
    ours = {name for name in OPS if defs.has(name)}
    assert len(ours) > 150 and all((ONNX, name) in RULES or (ONNX, name) in REFUSED for name in ours)


@rows("schema", [s for s in defs.get_all_schemas() if s.domain == ONNX], ids=lambda s: s.name)
def test_what_is_not_deterministic_is_refused(schema: defs.OpSchema) -> None:
    """AffineGrid only says that it is; what JUDGED names has a rule that looks."""
    if schema.node_determinism == defs.OpSchema.NodeDeterminism.NonDeterministic and schema.name != "AffineGrid":
        assert (ONNX, schema.name) in ALWAYS_REFUSED or schema.name in JUDGED
