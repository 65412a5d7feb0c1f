"""The arguments of a call of RNN, GRU or LSTM: sizes, directions and activations, checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ox.errors import ArgumentError, ShapeError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
USUAL = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
# the activations that take an alpha, or an alpha and a beta, with the defaults of the operators of that name
ALPHA = {
    "affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0, "hardsigmoid": 0.2, "elu": 1.0,
}  # fmt: skip
BETA = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}
WRONG_LENGTH = "a sequence length outside the sequences"
NAMES = {"tanh", "sigmoid", "relu", "softsign", "softplus", *ALPHA}


@dataclass(frozen=True)
class Activation:
    name: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Call:
    """The attributes of one call in a regular form."""

    kind: str
    direction: str
    layout: int
    activations: tuple[tuple[Activation, ...], ...]  # of each direction
    clip: float | None
    flag: int  # GRU's linear_before_reset, LSTM's input_forget

    @property
    def reverse(self) -> tuple[bool, ...]:
        return DIRECTIONS[self.direction]

    @property
    def usual(self) -> bool:
        """Whether the fast loops serve it: the default activations (of RNN also relu and sigmoid), nothing clipped."""
        if self.clip is not None or (self.kind == "LSTM" and self.flag):
            return False
        if self.kind == "RNN":
            return all(one[0].name in ("tanh", "relu", "sigmoid") for one in self.activations)
        return all(tuple(f.name for f in one) == USUAL[self.kind] for one in self.activations)


def call(kind: str, attributes: dict[str, Any]) -> Call:
    """Read the attributes of an operator call.

    Raises:
        ArgumentError: an unknown direction or activation, or another number of activations.
    """
    direction = attributes.get("direction", "forward")
    if direction not in DIRECTIONS:
        raise ArgumentError(
            f"{kind} has no direction {direction!r}", expected="'forward', 'reverse' or 'bidirectional'"
        )
    flag = attributes.get("linear_before_reset", attributes.get("input_forget", 0))
    return Call(
        kind,
        direction,
        attributes.get("layout", 0),
        _activations(kind, attributes, len(DIRECTIONS[direction])),
        attributes.get("clip"),
        flag,
    )


def _activations(kind: str, attributes: dict[str, Any], directions: int) -> tuple[tuple[Activation, ...], ...]:
    usual = USUAL[kind]
    names = attributes.get("activations")
    names = usual * directions if names is None else [name.lower() for name in names]
    if kind == "RNN":
        names = names[:directions]  # the schema's default has one for each of two directions
    if len(names) != len(usual) * directions or not NAMES.issuperset(names):
        raise ArgumentError(
            f"{kind} does not take the activations {list(names)}",
            expected=f"{len(usual) * directions} of {', '.join(sorted(NAMES))}",
        )
    alphas, betas = list(attributes.get("activation_alpha") or ()), list(attributes.get("activation_beta") or ())
    made = []
    for name in names:
        alpha = 0.0 if name not in ALPHA else alphas.pop(0) if alphas else ALPHA[name]
        beta = 0.0 if name not in BETA else betas.pop(0) if betas else BETA[name]
        made.append(Activation(name, alpha, beta))
    return tuple(tuple(made[d * len(usual) : (d + 1) * len(usual)]) for d in range(directions))


def check(this: Call, hidden: int | None, shapes: dict[str, Sequence[int] | None]) -> None:
    """Raise `ShapeError` unless the shapes of the inputs (None where left out) fit together."""
    x, w, r = shapes["X"], shapes["W"], shapes["R"]
    k, d = GATES[this.kind], len(this.reverse)
    if x is None or w is None or r is None or len(x) != 3 or len(w) != 3 or len(r) != 3:
        raise ShapeError(
            f"{this.kind} takes X, W and R of three dimensions",
            expected="X [T, N, I], W [directions, gates·H, I], R [directions, gates·H, H]",
            got=", ".join(f"{n} {None if s is None else list(s)}" for n, s in list(shapes.items())[:3]),
        )
    h = r[2] if hidden is None else hidden
    batch = x[0] if this.layout else x[1]
    state = (batch, d, h) if this.layout else (d, batch, h)
    wanted = {
        "W": (d, k * h, x[2]), "R": (d, k * h, h), "B": (d, 2 * k * h), "sequence_lens": (batch,),
        "initial_h": state, "initial_c": state, "P": (d, 3 * h),
    }  # fmt: skip
    for name, shape in wanted.items():
        got = shapes.get(name)
        if got is not None and tuple(got) != shape:
            raise ShapeError(
                f"{this.kind} of X {list(x)} with hidden size {h} and {d} direction(s) does not take this {name}",
                expected=f"{name} {list(shape)}",
                got=f"{name} {list(got)}",
            )


def check_lens(kind: str, lens: Any, steps: int) -> None:
    """Raise `ArgumentError` unless every length is one that the sequences have."""
    if lens.size and (int(lens.min()) < 0 or int(lens.max()) > steps):
        raise ArgumentError(f"{kind} has {WRONG_LENGTH}", expected=f"0 to {steps}", got=str(lens.tolist()))
