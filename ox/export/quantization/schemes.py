"""The schemes of `ox.export.quantize`."""

from __future__ import annotations

from dataclasses import dataclass

from ox.core.kind import Kind
from ox.core.operator import OPS
from ox.errors import ArgumentError


@dataclass(frozen=True)
class Scheme:
    """`layers` are the operators whose weights it quantizes; `opset` is the lowest that can express the result."""

    name: str
    layers: tuple[str, ...]
    opset: int
    precision: str | None = None  # the type that the result computes in, as in the contract of a file
    rounds: bool = False  # whether weights or activations become integers
    prepared: bool = False  # whether batch norms are folded first
    calibrated: bool = False


KINDS: tuple[Kind, ...] = ("product", "convolution", "recurrent", "selection")
WEIGHTED = tuple(name for name, op in OPS.items() if op.weights and op.kind in KINDS)
SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("float16", WEIGHTED, 7, precision="float16"),
        Scheme("bfloat16", WEIGHTED, 13),
        # Without Conv: ONNX Runtime's ConvInteger took 54 times as long as float32 for a ResNet-18 on small images.
        Scheme("int8-dynamic", ("Gemm", "MatMul", "LSTM", "Gather"), 13, rounds=True, prepared=True),
        Scheme(
            "int8",
            ("Conv", "ConvTranspose", "Gemm", "MatMul", "Gather"),
            13,
            rounds=True,
            prepared=True,
            calibrated=True,
        ),
        Scheme("int4", ("Gemm", "MatMul"), 21, rounds=True, prepared=True),
    )
}


def scheme_of(name: str) -> Scheme:
    """Raises ArgumentError for an unknown name."""
    if name not in SCHEMES:
        raise ArgumentError(f"there is no scheme '{name}'", expected=", ".join(SCHEMES), got=name)
    return SCHEMES[name]
