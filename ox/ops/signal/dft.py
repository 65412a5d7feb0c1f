"""The discrete Fourier transform: DFT. Complex values are pairs: a last dimension of 2."""

from ox.core.constants import axes_tensor, constant, number
from ox.core.operator import OPS, operator
from ox.core.symbolic import Dim
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T1, XP, Array, HostInt64, HostTind
from ox.core.upcast import downcast
from ox.dtypes import FLOATS, HALF_TYPES, float32, int32, int64, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.arithmetic import Div, Mul, Sub
from ox.ops.elementwise.comparison import Equal, Or, Where

__all__ = ["DFT"]

LENGTHS = (int32, int64)


@operator("output", kind="signal", sized_by="dft_length", T1=FLOATS, Tind=LENGTHS, amp="float32", batching="each")
def DFT(
    xp: XP, input: T1, dft_length: HostTind = None, axis: HostInt64 = None, *, inverse: int = 0, onesided: int = 0
) -> T1:
    """The Fourier transform of real [..., 1] or complex values [..., 2] along an axis (by default the last but one),
    cut or padded with zeros to `dft_length`. The inverse divides by the length.

    `onesided` gives the first half of what real values have, [..., length / 2 + 1, 2], or with `inverse` the real
    values [..., length, 1] that it came from. ONNX DFT.
    """
    along = -2 if axis is None else int(axis.reshape(()))
    rank = input.ndim
    if rank < 2 or input.shape[-1] not in (1, 2) or not -rank <= along < rank or along % rank == rank - 1:
        raise ShapeError(
            "DFT works along an axis before the last one, which holds real and imaginary part",
            expected="[..., n, 1] or [..., n, 2], and an axis among the others",
            got=f"{list(input.shape)}, axis {along}",
        )
    along %= rank
    length = None if dft_length is None else int(dft_length.reshape(()))
    if length is not None and length < 1:
        raise ArgumentError("a Fourier transform has a length of 1 or more", got=str(length))
    x = input.astype(float32) if input.dtype in HALF_TYPES else input
    real = x.shape[-1] == 1
    if onesided and not inverse:
        if not real:
            raise ShapeError("a onesided DFT takes real values", expected="[..., 1]", got=str(list(input.shape)))
        y = xp.fft.rfft(x[..., 0], length, along)
    elif onesided:
        if real:
            raise ShapeError("a onesided inverse DFT takes complex values", expected="[..., 2]", got="[..., 1]")
        y = xp.fft.irfft(_complex(xp, x), length, along)[..., None]
    else:
        y = (xp.fft.ifft if inverse else xp.fft.fft)(x[..., 0] if real else _complex(xp, x), length, along)
    if y.dtype.kind == "c":
        y = xp.stack([y.real, y.imag], -1)
    return downcast(y, input.dtype) if input.dtype in HALF_TYPES else y.astype(input.dtype, copy=False)


def _complex(xp: XP, x: Array) -> Array:
    return xp.ascontiguousarray(x).view("complex64" if x.dtype == float32 else "complex128")[..., 0]


@DFT.gradient("input")
def _(
    g: TensorBase,
    dft_length: TensorBase | None,
    axis: TensorBase | None,
    input_shape: tuple[int, ...],
    inverse: int,
    onesided: int,
) -> TensorBase:
    rank = len(input_shape)
    at = (-2 if axis is None else int(axis.array.reshape(()))) % rank
    if onesided and inverse:
        return _of_real_inverse(g, axis, at, input_shape)
    # the transform is a matrix F; what goes back through it is the conjugate of F transposed: n times the inverse
    # (of a onesided transform the frequencies that were left out have no cotangent)
    length = _flat_length(dft_length, input_shape[at]) if onesided else OPS["Shape"](g, start=at, end=at + 1)
    n = OPS["Squeeze"](length, axes_tensor([0]))
    back = DFT(g, n, axis, inverse=1 - inverse)
    scale = OPS["Cast"](n, to=onnx_type(g.dtype))
    back = Div(back, scale) if inverse else Mul(back, scale)
    if dft_length is not None:  # cut what was padded, pad what was cut
        back = _resized(back, at, length, input_shape[at])
    if input_shape[-1] == 1:
        back = OPS["Slice"](back, axes_tensor([0]), axes_tensor([1]), axes_tensor([rank - 1]))
    return back


def _flat_length(dft_length: TensorBase | None, size: int) -> TensorBase:
    """The length as int64 [1]."""
    if dft_length is None:
        return size.tensor if isinstance(size, Dim) else axes_tensor([size])
    given = dft_length if dft_length.dtype == int64 else OPS["Cast"](dft_length, to=onnx_type(int64))
    return OPS["Reshape"](given, axes_tensor([1]))


def _resized(x: TensorType, at: int, have: TensorBase, want: int) -> TensorType:
    """Cut or padded with zeros at the end of an axis."""
    wanted = want.tensor if isinstance(want, Dim) else axes_tensor([want])
    pads = OPS["Concat"](axes_tensor([0]), Sub(wanted, have), axis=0)
    return OPS["Pad"](x, pads, None, axes_tensor([at]))


def _of_real_inverse(g: TensorType, axis: TensorBase | None, at: int, input_shape: tuple[int, ...]) -> TensorType:
    """Every frequency but the first, and the middle one of an even length, stood for two."""
    n = OPS["Shape"](g, start=at, end=at + 1)
    back = DFT(g, None, axis, onesided=1)
    half = OPS["Shape"](back, start=at, end=at + 1)
    ks = OPS["Range"](number(0, int64), OPS["Squeeze"](half, axes_tensor([0])), number(1, int64))
    once = Or(Equal(ks, number(0, int64)), Equal(Mul(ks, number(2, int64)), n))
    weight = Where(once, constant(1, g), constant(2, g))
    rest = [i for i in range(len(input_shape) - at) if i]
    weight = OPS["Unsqueeze"](weight, axes_tensor(rest))
    back = Mul(back, Div(weight, OPS["Cast"](n, to=onnx_type(g.dtype))))
    return _resized(back, at, half, input_shape[at])
