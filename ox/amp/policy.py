"""In which element type an operator or function runs under autocast: the one table.

Of an operator its definition says it (``amp=``), of a function the table here:

    lower     products: most of the time, and sums that hardware keeps in float32
    float32   what takes small steps in and makes large ones (exponentials, poles), norms, losses, sums
    widest    inputs that share an element type get the widest that came (a tensor of no dimensions does not decide)
    keep      inputs and outputs keep their types

The rows follow PyTorch's lists for CUDA, on the CPU too, with two differences: every reduction that adds or multiplies
is float32 (PyTorch leaves `mean` to its kernels), and so is Sqrt, of which norms and `rsqrt` are made. docs/amp.md
shows the table; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, reduce, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.dtypes import FLOATING, DType, bfloat16, float16, float32, promote
from ox.errors import ArgumentError

if TYPE_CHECKING:
    from ox.core.operator import Operator

LOWER, FLOAT32, WIDEST, KEEP = "lower", "float32", "widest", "keep"
RULES = (LOWER, FLOAT32, WIDEST, KEEP)
ELIGIBLE = frozenset((float16, bfloat16, float32))  # float64 was chosen explicitly: it stays

# From the operators' definitions, except those of WIDEST; by ONNX name, with the domain for those of ox.
OPERATORS: dict[str, str] = {name: op.amp for name, op in OPS.items() if op.amp is not None and op.amp != WIDEST}

# Functions that are made of several operators: their tensors are cast when they begin. In those of FLOAT32 and WIDEST
# autocast is off until they end; in those of LOWER a softmax inside is float32 still.
FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("mm", "mv", "bmm", "addmm", "addmv", "addr", "addbmm", "baddbmm", "vecdot"), LOWER),
    "scaled_dot_product_attention": LOWER,
    **dict.fromkeys(("dot", "bilinear", "scatter_add", "index_copy", "index_put"), WIDEST),
    **dict.fromkeys(("pow", "erfinv"), FLOAT32),
    **dict.fromkeys(("cross_entropy", "nll_loss", "kl_div", "ctc_loss"), FLOAT32),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"), FLOAT32),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits"), FLOAT32),
    **dict.fromkeys(("poisson_nll_loss", "gaussian_nll_loss", "hinge_embedding_loss"), FLOAT32),
    **dict.fromkeys(("cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss"), FLOAT32),
    **dict.fromkeys(("soft_margin_loss", "multi_margin_loss"), FLOAT32),
    **dict.fromkeys(("multilabel_margin_loss", "multilabel_soft_margin_loss"), FLOAT32),
    **dict.fromkeys(("cosine_similarity", "pairwise_distance", "cdist", "pdist", "dist", "renorm"), FLOAT32),
    **dict.fromkeys(("local_response_norm", "var", "std", "var_mean", "std_mean"), FLOAT32),
    **dict.fromkeys(("quantile", "nanquantile", "pinv", "matrix_rank", "lstsq"), FLOAT32),
}

UNKNOWN: Any = object()
MIXED: Any = object()  # decided call by call, for it depends on dimensions

Cast = tuple[tuple[int, DType], ...] | None  # which inputs to cast, and to what


class Rules:
    """The table for one lower type, with its decisions for the combinations of element types so far."""

    def __init__(self, dtype: DType, changes: Mapping[str, str]) -> None:
        self.dtype = dtype
        self.table = {**FUNCTIONS, **changes}
        self.plans: dict[Any, Any] = {}

    def casts(self, op: Operator, inputs: Any) -> Cast:
        """Which of these inputs (tensors or None) a call needs in another type. AttributeError for what is neither."""
        kinds = tuple([None if x is None else x.array.dtype for x in inputs])
        plan = self.plans.get((op, kinds), UNKNOWN)
        if plan is UNKNOWN:
            plan = self.plans[op, kinds] = self._plan(op, kinds)
        return self._widest(op, inputs) if plan is MIXED else plan

    def _plan(self, op: Operator, kinds: tuple[DType | None, ...]) -> Any:
        rule = self.table.get(f"{op.domain}.{op.name}" if op.domain else op.name) or op.amp or WIDEST
        if rule == KEEP or not any(kind in ELIGIBLE for kind in kinds):
            return None
        if rule == WIDEST:
            several: dict[str, set[DType]] = {}
            for i, kind in enumerate(kinds):
                if kind is not None:
                    several.setdefault(op.schema.input_at(i).type, set()).add(kind)
            return MIXED if any(len(group) > 1 and group <= FLOATING for group in several.values()) else None
        target = self.dtype if rule == LOWER else float32
        return (
            tuple(
                (i, target)
                for i, kind in enumerate(kinds)
                if kind in ELIGIBLE and kind != target and not op.schema.input_at(i).host
            )
            or None
        )

    def _widest(self, op: Operator, inputs: Any) -> Cast:
        several: dict[str, list[tuple[int, Any]]] = {}
        for i, x in enumerate(inputs):
            if x is not None:
                several.setdefault(op.schema.input_at(i).type, []).append((i, x.array))
        found: list[tuple[int, DType]] = []
        for group in several.values():
            deciding = [a.dtype for _, a in group if a.ndim] or [a.dtype for _, a in group]
            if all(a.dtype in FLOATING for _, a in group):
                target = reduce(promote, deciding)
                found += [(i, target) for i, a in group if a.dtype != target]
        return tuple(found) or None


@lru_cache(maxsize=64)
def rules(dtype: DType, changes: tuple[tuple[str, str], ...] = ()) -> Rules:
    """The table for a lower type, with changes to it.

    Raises:
        ArgumentError: a name that is no operator or function of the table, or no such rule.
    """
    for name, rule in changes:
        if name not in FUNCTIONS and name not in OPS:
            raise ArgumentError(
                f"the policy names '{name}', which autocast does not know",
                expected="an operator's ONNX name (MatMul) or a function of ox.amp.policy.FUNCTIONS (mse_loss)",
            )
        if rule not in RULES:
            raise ArgumentError(f"the policy of '{name}' is {rule!r}", expected=" or ".join(RULES))
    return Rules(dtype, dict(changes))


F = TypeVar("F", bound=Callable[..., Any])


def by_policy(function: F) -> F:
    """A function of several operators that stands in `FUNCTIONS` under its own name."""
    name = function.__name__

    @wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        active = MODE.get().autocast
        if active is None:
            return function(*args, **kwargs)
        return active.function(name, function, args, kwargs)

    return cast(F, made)
