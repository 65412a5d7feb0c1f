"""A GPU that is lost to this process, or a stream of it: the error of runs there, which no other device has."""

from __future__ import annotations

import re

from ox.devices import cuda
from ox.devices.gpu.sticky_errors import lost
from ox.errors import DeviceError, ServeError

# Of CUDA and its libraries. A product or a convolution that fails to run may have met a lost GPU.
OF_DEVICE = re.compile(r"CUDA (failure|error)|cudaError|CUDA_ERROR_|CUBLAS|CUDNN|CUFFT", re.I)

# A stream that something else in this process destroyed.
STREAM = re.compile(
    r"(?:CUDA failure 400|cudaErrorInvalidResourceHandle|CUDA_ERROR_INVALID_HANDLE): invalid resource handle"
)


class LostDeviceError(ServeError):
    """A GPU, or a model's stream of one, with which a model runs no more."""


def lost_device(error: Exception, number: int) -> LostDeviceError | None:
    """The error for clients if a GPU failed so that it answers no more, or a model's stream is gone, else None."""
    gone = STREAM.search(str(error))
    if gone is not None:
        return LostDeviceError(
            f"the stream of cuda:{number} that this model runs on has been destroyed",
            status=503,
            got=gone[0],
            hint="unload the model, and load it again; other models go on",
        )
    reason = lost(str(error))
    if reason is None and OF_DEVICE.search(str(error)):
        reason = device_error(number)
    if reason is None:
        return None
    return LostDeviceError(
        f"cuda:{number} has failed, and takes no more work of this server",
        status=503,
        got=reason,
        hint="nvidia-smi, and a restart of the server; models on other devices go on",
    )


def device_error(number: int) -> str | None:
    """What CUDA answers on a GPU to a question that waits for nothing: the error of a lost GPU, which it gives to each
    call; None where it works, where it has another error (no memory for a context), or where CuPy is missing."""
    if cuda.available():
        try:
            cuda.memory(f"cuda:{number}")
        except DeviceError:  # there is no such number for CuPy
            return None
        except cuda.cupy().cuda.runtime.CUDARuntimeError as error:
            return lost(str(error))
    return None
