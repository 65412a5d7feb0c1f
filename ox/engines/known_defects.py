"""What stock runtimes compute otherwise than ONNX says, without an error: an engine refuses such nodes.

Found by tests/engines/test_operators.py, which runs every operator and its gradient; versions 1.32 of ONNX Runtime and
2026.4 of OpenVINO, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ox.core.operator import moves
from ox.dtypes import NARROW, PACKED, float64, int8, int16, int64, uint8, uint16, uint32, uint64
from ox.errors import DeviceError
from ox.graph.ir import Graph, Node

Defect = Callable[[Node, Graph], str]  # why a node goes wrong; an empty text where it does not
SMALL, UNSIGNED = frozenset((int8, int16, uint8, uint16)), frozenset((uint32, uint64))
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def refuse(graph: Graph, runtime: str, defects: Mapping[str, Defect], general: Defect | None = None) -> None:
    """Raise DeviceError for a node that a runtime gets wrong.

    Args:
        defects: by operator.
        general: of any operator.
    """
    for node in graph.all_nodes():
        for defect in (defects.get(node.key), general):
            reason = defect(node, graph) if defect is not None else ""
            if reason:
                raise DeviceError(
                    f"{runtime} does not compute {node.key} right {reason}", where=node.place, hint="another engine"
                )


def packed(node: Node, graph: Graph) -> str:
    """Of types of which several numbers share a byte, which an engine hands over a byte each."""
    narrow = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.dtype in PACKED]
    return f"in {narrow[0]}, of which several numbers share a byte" if narrow else ""


def always(node: Node, graph: Graph) -> str:
    return "in all cases"


def _small_norms(node: Node, graph: Graph) -> str:
    return "where the norm is small, to which it adds a number"


def _reduced_scatter(node: Node, graph: Graph) -> str:
    races = node.attributes.get("reduction", "none") != "none"
    return "with a reduction, as its threads race where indices repeat" if races else ""


def _aligned_by_scales(node: Node, graph: Graph) -> str:
    aligned = node.attributes.get("coordinate_transformation_mode") == "align_corners"
    return "with aligned corners and scales" if aligned and len(node.inputs) == 3 else ""


def _resize(node: Node, graph: Graph) -> str:
    if node.attributes.get("antialias") or node.attributes.get("exclude_outside"):
        return "with antialias or exclude_outside"
    return _aligned_by_scales(node, graph)


def _onesided_inverse(node: Node, graph: Graph) -> str:
    both = node.attributes.get("inverse") and node.attributes.get("onesided")
    return "as a onesided inverse" if both else ""


def _with_sizes(node: Node, graph: Graph) -> str:
    return "with an output shape" if len(node.inputs) > 2 else ""


def _even_size(node: Node, graph: Graph) -> str:
    return "of an even size" if node.attributes["size"] % 2 == 0 else ""


def _half_pixel_boxes(node: Node, graph: Graph) -> str:
    mode = node.attributes.get("coordinate_transformation_mode")
    return "without half pixels" if mode == "output_half_pixel" else ""


def _computed_value(node: Node, graph: Graph) -> str:
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return "with a computed value" if value is not None and value not in graph.constants else ""


def _no_axes(node: Node, graph: Graph) -> str:
    without = len(node.inputs) < 2 or node.inputs[1] is None
    return "over no axes" if node.attributes.get("noop_with_empty_axes") and without else ""


def _wide(node: Node, graph: Graph) -> str:
    """Sums and single products stay within 32 bits for counters and sizes, which nearly every graph has."""
    return "in int64, which it computes in 32 bits" if node.outputs[0].dtype == int64 else ""


def _reduced_product(node: Node, graph: Graph) -> str:
    return _no_axes(node, graph) or _wide(node, graph)


def _peepholes(node: Node, graph: Graph) -> str:
    return "with peepholes" if len(node.inputs) > 7 and node.inputs[7] is not None else ""


def _overflowing_softplus(node: Node, graph: Graph) -> str:
    found = "softplus" in [name.lower() for name in node.attributes.get("activations") or ()]
    return "with Softplus, whose exponential overflows above 88" if found else ""


def _narrowed(node: Node, graph: Graph) -> str:
    """OpenVINO's CPU computes float64 in float32 (single numbers, as those of an optimizer, stay close enough), 64 bits
    in 32, and small integers in larger ones that end at their limits; it mistakes what has no elements. Its arrays
    are of no float of 8 bits or less, and of no integer of less."""
    for v in (*node.inputs, *node.outputs):
        if v is not None and v.dtype in NARROW:
            return f"in {v.dtype}"
    for v in node.outputs:
        if v.dtype in UNSIGNED or (v.dtype in SMALL and not moves(node.key)) or (v.dtype == float64 and v.shape):
            return f"in {v.dtype}"
        if v.shape is not None and 0 in v.shape:
            return "where there are no elements"
    return ""


ONNXRUNTIME: dict[str, Defect] = {
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _overflowing_softplus),
    "ScatterND": _reduced_scatter,
    "Resize": _aligned_by_scales,
    "DFT": _onesided_inverse,
    "MaxUnpool": _with_sizes,
}
OPENVINO: dict[str, Defect] = {
    **dict.fromkeys(("Attention", "DFT", "NonMaxSuppression", "STFT"), always),
    **dict.fromkeys((f"Reduce{kind}" for kind in REDUCTIONS), _no_axes),
    **dict.fromkeys(("Pow", "BitShift", "CumProd"), _wide),
    "ReduceProd": _reduced_product,
    "Resize": _resize,
    "LRN": _even_size,
    "RoiAlign": _half_pixel_boxes,
    "Pad": _computed_value,
    "LSTM": _peepholes,
    "LpNormalization": _small_norms,
    "ScatterND": _reduced_scatter,
}
OPENVINO_GENERAL: Defect = _narrowed
