"""A GPU that is lost to this process, or a stream of it: the error of runs there, which no other device has."""

from __future__ import annotations

import re

from ox.errors import ServeError

# Errors after which CUDA refuses all further work of the process on the device, in the words of CUDA, as ONNX Runtime
# ("CUDA failure 719: ...") and CuPy repeat them, of the runtime and of the driver, which launches CuPy's kernels
# ("cudaErrorLaunchFailure: ...", "CUDA_ERROR_LAUNCH_FAILED: ...").
LOST = re.compile(
    r"(?:CUDA failure \d+|cudaError\w+|CUDA_ERROR_\w+): (an illegal memory access was encountered|"
    r"unspecified launch failure|an illegal instruction was encountered|misaligned address|hardware stack error|"
    r"invalid program counter|"
    r"operation not supported on global/shared address space|"
    r"device-side assert triggered|the launch timed out and was terminated|unknown error|context is destroyed|"
    r"uncorrectable ECC error encountered|uncorrectable NVLink error detected[^;\n]*)"
)

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
    found = LOST.search(str(error))
    if found is None:
        return None
    return LostDeviceError(
        f"cuda:{number} has failed, and takes no more work of this server",
        status=503,
        got=found[0],
        hint="nvidia-smi, and a restart of the server; models on other devices go on",
    )
