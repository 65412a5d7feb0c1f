"""The type variables of ONNX schemas, as annotations that an operator definition carries and `Operator` reads.

``A: T``: the input has the element type bound to the variable T; ``axes: HostInt64``: it is an int64
tensor that stays in host memory on every device (axes, shapes, pads: what a kernel needs as Python numbers).
"""

from typing import Annotated, Any

XP = Any  # numpy or cupy
Array = Any  # numpy.ndarray or cupy.ndarray

T = Annotated[Any, "T"]
T1 = Annotated[Any, "T1"]
T2 = Annotated[Any, "T2"]
T3 = Annotated[Any, "T3"]
Tind = Annotated[Any, "Tind"]
U = Annotated[Any, "U"]
V = Annotated[Any, "V"]
S = Annotated[Any, "S"]  # a sequence
O = Annotated[Any, "O"]  # noqa: E741 (ONNX's name for an optional)
I = Annotated[Any, "I"]  # noqa: E741
HostI = Annotated[Any, "I", "host"]
Bool = Annotated[Any, "bool"]
Int64 = Annotated[Any, "int64"]
HostInt64 = Annotated[Any, "int64", "host"]
HostTind = Annotated[Any, "Tind", "host"]
HostT = Annotated[Any, "T", "host"]
HostT1 = Annotated[Any, "T1", "host"]
HostT2 = Annotated[Any, "T2", "host"]
HostFloat32 = Annotated[Any, "float32", "host"]
Float32 = Annotated[Any, "float32"]
UInt32 = Annotated[Any, "uint32"]
UInt64 = Annotated[Any, "uint64"]
