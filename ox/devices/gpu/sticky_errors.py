"""Errors of CUDA after which a process can do nothing more on a GPU.

Source: CUDA Runtime API, cudaError_t ("the process must be terminated and relaunched"), driver_types.h and cuda.h.
"""

from __future__ import annotations

import re

# By number: the name of the runtime and that of the driver. CUDA does not say it of errors of memory and links, of a
# destroyed context and of an unknown error, after which all calls fail, too.
LOST = {
    214: ("cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE"),
    220: ("cudaErrorNvlinkUncorrectable", "CUDA_ERROR_NVLINK_UNCORRECTABLE"),
    226: ("cudaErrorContained", "CUDA_ERROR_CONTAINED"),
    700: ("cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    702: ("cudaErrorLaunchTimeout", "CUDA_ERROR_LAUNCH_TIMEOUT"),
    709: ("cudaErrorContextIsDestroyed", "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    710: ("cudaErrorAssert", "CUDA_ERROR_ASSERT"),
    714: ("cudaErrorHardwareStackError", "CUDA_ERROR_HARDWARE_STACK_ERROR"),
    715: ("cudaErrorIllegalInstruction", "CUDA_ERROR_ILLEGAL_INSTRUCTION"),
    716: ("cudaErrorMisalignedAddress", "CUDA_ERROR_MISALIGNED_ADDRESS"),
    717: ("cudaErrorInvalidAddressSpace", "CUDA_ERROR_INVALID_ADDRESS_SPACE"),
    718: ("cudaErrorInvalidPc", "CUDA_ERROR_INVALID_PC"),
    719: ("cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED"),
    721: ("cudaErrorTensorMemoryLeak", "CUDA_ERROR_TENSOR_MEMORY_LEAK"),
    810: ("cudaErrorMpsClientTerminated", "CUDA_ERROR_MPS_CLIENT_TERMINATED"),
    999: ("cudaErrorUnknown", "CUDA_ERROR_UNKNOWN"),
}
# As ONNX Runtime ("CUDA failure 719: ...") and CuPy ("cudaErrorLaunchFailure: ...") repeat them
_NAMES = "|".join([f"CUDA failure {number}" for number in LOST] + [name for names in LOST.values() for name in names])
_TEXT = re.compile(rf"\b(?:{_NAMES})\b[^;\n]*")


def lost(text: str) -> str | None:
    """The part of an error's text that is one of these errors; None where there is none."""
    match = _TEXT.search(text)
    return None if match is None else match[0].strip()
