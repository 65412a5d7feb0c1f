"""LinearAttention: attention as a recurrence over a state of fixed size."""

from typing import Annotated, Any

from ox.core.constants import axes_tensor, constant, zeros
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, T
from ox.dtypes import bfloat16, float16, float32, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.arithmetic import Add, Div, Exp, Mul, Sqrt, Sub
from ox.ops.nn.normalization import as_type, widely
from ox.ops.recurrent.time_loop import over_time
from ox.ops.reduce.reduction import ReduceSum

__all__ = ["LinearAttention"]

S = Annotated[Any, "S"]
TYPES = (float16, bfloat16, float32)
GATED, DELTA = ("gated", "gated_delta"), ("delta", "gated_delta")


@operator(
    "output present_state", kind="attention", T=TYPES, S=TYPES, ignore_fp_warnings=True, amp="lower", batching="each"
)
def LinearAttention(
    xp: XP,
    query: T,
    key: T,
    value: T,
    past_state: S = None,
    decay: T = None,
    beta: T = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    outputs: int = 1,
) -> tuple[T, S]:
    """For each head a state [dk, dv] that takes in key and value at each step and is read by the query.

    S' = exp(decay)·S; S = S' + key ⊗ u; output = scale·query·S, where u is the value, or with a delta rule
    beta·(value - key·S'). query [N, T, heads·dk], key [N, T, kv_heads·dk], value [N, T, kv_heads·dv], decay
    [N, T, kv_heads] or one for each of dk, beta [N, T, kv_heads] or [N, T, 1]; scale 0 is 1/sqrt(dk). Computed step by
    step in float32; `chunk_size` is for others. ONNX LinearAttention.
    """
    _check(query, key, value, decay, beta, kv_num_heads, q_num_heads, update_rule)
    heads, times = kv_num_heads, q_num_heads // kv_num_heads
    n, steps = query.shape[:2]
    q = widely(query).reshape(n, steps, heads, times, -1)
    k, v = (widely(x).reshape(n, steps, heads, 1, -1) for x in (key, value))
    dk, dv = k.shape[-1], v.shape[-1]
    if past_state is not None and past_state.shape != (n, heads, dk, dv):
        raise ShapeError("past_state", expected=str([n, heads, dk, dv]), got=str(list(past_state.shape)))
    state = xp.zeros((n, heads, dk, dv), float32) if past_state is None else widely(past_state).copy()
    grown = None if decay is None else xp.exp(widely(decay)).reshape(n, steps, heads, -1, 1)
    rate = None if beta is None else widely(beta).reshape(n, steps, -1, 1, 1)
    factor = float32.type(scale or dk**-0.5)
    out = xp.empty((n, steps, heads, times, dv), float32)
    for t in range(steps):
        if grown is not None:
            state = state * grown[:, t]
        u = v[:, t] if rate is None else rate[:, t] * (v[:, t] - xp.matmul(k[:, t], state))
        state = state + k[:, t].swapaxes(-1, -2) * u
        out[:, t] = factor * xp.matmul(q[:, t], state)
    kind = query.dtype if past_state is None else past_state.dtype
    return (out.reshape(n, steps, -1).astype(query.dtype, copy=False), state.astype(kind, copy=False))[:outputs]


def _check(query: Array, key: Array, value: Array, decay: Any, beta: Any, kv: int, heads: int, rule: str) -> None:
    if rule not in ("linear", *GATED, "delta"):
        raise ArgumentError(
            f"LinearAttention has no update_rule {rule!r}", expected="linear, gated, delta, gated_delta"
        )
    for name, given, wanted in (("decay", decay, rule in GATED), ("beta", beta, rule in DELTA)):
        if (given is not None) != wanted:
            raise ArgumentError(f"update_rule {rule!r} {'needs' if wanted else 'takes no'} {name}")
    if kv < 1 or heads < 1 or heads % kv:
        raise ArgumentError("q_num_heads must be a multiple of kv_num_heads", got=f"{heads} and {kv}")
    shapes = [x.shape for x in (query, key, value)]
    fits = all(len(s) == 3 and s[:2] == shapes[0][:2] for s in shapes)
    fits = fits and not (shapes[0][2] % heads or shapes[1][2] % kv or shapes[2][2] % kv)
    if not fits or shapes[0][2] // heads != shapes[1][2] // kv:
        raise ShapeError(
            "LinearAttention takes query [N, T, heads·dk], key [N, T, kv_heads·dk] and value [N, T, kv_heads·dv]",
            got=", ".join(str(list(s)) for s in shapes),
        )
    dk = shapes[1][2] // kv
    if decay is not None and decay.shape not in ((*shapes[0][:2], kv), (*shapes[0][:2], kv * dk)):
        raise ShapeError("decay is one number a head, or one for each of its keys", got=str(list(decay.shape)))
    if beta is not None and beta.shape not in ((*shapes[0][:2], kv), (*shapes[0][:2], 1)):
        raise ShapeError("beta is one number a head, or one for all", got=str(list(beta.shape)))


@LinearAttention.expansion
def _(
    query: TensorBase,
    key: TensorBase,
    value: TensorBase,
    past_state: TensorBase | None = None,
    decay: TensorBase | None = None,
    beta: TensorBase | None = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    **_: Any,
) -> tuple[TensorBase, TensorBase]:
    heads, times = kv_num_heads, q_num_heads // kv_num_heads
    q = _steps(query, [heads, times, -1])
    given = [_steps(key, [heads, 1, -1]), _steps(value, [heads, 1, -1])]
    if decay is not None:
        given.append(Exp(_steps(decay, [heads, -1, 1])))
    if beta is not None:
        given.append(_steps(beta, [-1, 1, 1]))
    width = OPS["Cast"](OPS["Shape"](q, start=4, end=5), to=onnx_type(float32))
    q = Mul(q, constant(scale, q)) if scale else Div(q, Sqrt(width))
    sizes = [query.shape[0], heads, given[0].shape[4], given[1].shape[4]]
    first = zeros(sizes, q) if past_state is None else as_type(past_state, float32)

    def step(states: list[Any], now: list[Any]) -> tuple[list[Any], list[Any]]:
        _, u, decayed = _step(states[0], now[1:], decay is not None, beta is not None)
        state = Add(decayed, OPS["MatMul"](_turned(now[1]), u))
        return [state], [OPS["MatMul"](now[0], state)]

    (state,), (out,) = over_time(step, [first], [q, *given], False)
    flat = OPS["Reshape"](OPS["Transpose"](out, perm=[1, 0, 2, 3, 4]), axes_tensor([0, 0, -1]))
    return as_type(flat, query.dtype), as_type(state, query.dtype if past_state is None else past_state.dtype)


@LinearAttention.gradient("query", "key", "value", "past_state", "decay", "beta")
def _(
    g: TensorBase | None,
    g_state: TensorBase | None,
    query: TensorBase,
    key: TensorBase,
    value: TensorBase,
    past_state: TensorBase | None,
    decay: TensorBase | None,
    beta: TensorBase | None,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float,
) -> tuple[TensorBase | None, ...]:
    heads, times = kv_num_heads, q_num_heads // kv_num_heads
    dk, dv = int(key.shape[2]) // heads, int(value.shape[2]) // heads
    n, kind = query.shape[0], query.dtype
    factor = constant(scale or dk**-0.5, zeros([1], as_type(query, float32)))
    q = Mul(_steps(query, [heads, times, dk]), factor)
    k, v = _steps(key, [heads, 1, dk]), _steps(value, [heads, 1, dv])
    given = [k, v]
    if decay is not None:
        given.append(Exp(_steps(decay, [heads, -1, 1])))
    if beta is not None:
        given.append(_steps(beta, [-1, 1, 1]))
    first = zeros([n, heads, dk, dv], k) if past_state is None else as_type(past_state, float32)

    def forward(states: list[Any], now: list[Any]) -> tuple[list[Any], list[Any]]:
        _, u, decayed = _step(states[0], now, decay is not None, beta is not None)
        return [Add(decayed, OPS["MatMul"](_turned(now[0]), u))], [OPS["Identity"](states[0])]

    def backward(states: list[Any], now: list[Any]) -> tuple[list[Any], list[Any]]:
        before, q_t, g_t, *rest = now
        error, u, decayed = _step(before, rest, decay is not None, beta is not None)
        k_t = rest[0]
        state = Add(decayed, OPS["MatMul"](_turned(k_t), u))
        to_state = Add(states[0], OPS["MatMul"](_turned(q_t), g_t))
        to_q = OPS["MatMul"](g_t, _turned(state))
        to_k = OPS["MatMul"](u, _turned(to_state))
        to_u = OPS["MatMul"](k_t, to_state)
        to_v, to_decayed, made = to_u, to_state, []
        if beta is not None:
            to_rate = ReduceSum(Mul(to_u, error), axes_tensor([-1]), keepdims=1)
            shared = int(beta.shape[2]) == 1 and heads > 1
            made = [ReduceSum(to_rate, axes_tensor([1]), keepdims=1) if shared else to_rate]
            to_v = Mul(rest[-1], to_u)
            to_k = Sub(to_k, OPS["MatMul"](to_v, _turned(decayed)))
            to_decayed = Sub(to_state, OPS["MatMul"](_turned(k_t), to_v))
        to_before = to_decayed
        if decay is not None:
            to_before = Mul(to_decayed, rest[2])
            along = axes_tensor([-1] if int(decay.shape[2]) == heads * dk else [-2, -1])
            made = [ReduceSum(Mul(to_before, before), along, keepdims=1), *made]
        return [to_before], [to_q, to_k, to_v, *made]

    _, (befores,) = over_time(forward, [first], given, False)
    last = zeros([n, heads, dk, dv], k) if g_state is None else as_type(g_state, float32)
    g = zeros([*query.shape[:2], heads * times * dv], k) if g is None else g
    results = 3 + (decay is not None) + (beta is not None)
    (to_first,), found = over_time(backward, [last], [befores, q, _steps(g, [heads, times, dv]), *given], True, results)
    found[0] = Mul(found[0], factor)
    flat = [
        as_type(OPS["Reshape"](OPS["Transpose"](x, perm=[1, 0, 2, 3, 4]), axes_tensor([0, 0, -1])), kind) for x in found
    ]
    to_past = as_type(to_first, past_state.dtype) if past_state is not None else None
    to_decay = flat[3] if decay is not None else None
    return flat[0], flat[1], flat[2], to_past, to_decay, flat[-1] if beta is not None else None


def _steps(x: TensorType, sizes: list[int]) -> TensorType:
    """[N, T, features] as [T, N, *sizes] in float32."""
    parted = OPS["Reshape"](as_type(x, float32), axes_tensor([0, 0, *sizes]))
    return OPS["Transpose"](parted, perm=[1, 0, 2, 3, 4])


def _turned(x: TensorType) -> TensorType:
    return OPS["Transpose"](x, perm=[0, 1, 3, 2])


def _step(state: Any, now: list[Any], gated: bool, delta: bool) -> tuple[Any, Any, Any]:
    """The difference between value and prediction of the state, the update, and the state after its decay."""
    decayed = Mul(state, now[2]) if gated else state
    if not delta:
        return None, now[1], decayed
    error = Sub(now[1], OPS["MatMul"](now[0], decayed))
    return error, Mul(now[-1], error), decayed
