"""What ONNX Runtime's errors mean: whose fault a run that failed is, and their text without C++."""

from __future__ import annotations

import re
from pathlib import Path

from ox.errors import LoadError, ServeError

CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
LOADING = re.compile(r"(Exception during initialization|Load model from \S+ failed): ?")
NODE = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'[^']*' Status Message: ?")
# Where in its source a check failed: the file, the function's signature, the condition.
CHECK = re.compile(
    r"/\S*/(?:onnxruntime|_deps)/\S+?:\d+ [^()]*?\w\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with .*?\](?= ))? "
    r"(?:.{1,300}? was false\. )?"
)
FILE = re.compile(r"\S*/(?:onnxruntime|_deps)/\S+\.(?:cc|h|cpp)(?::\d+)?\s?|\b\w+\.(?:cc|h|cpp):\d+ \w+ ")
HINT = "inputs whose sizes and values fit one another and the model"
NEGATIVE_SIZE = "Size() must be >= 0"
# What ONNX Runtime appends to an error of CUDA: the host's name, its own sources.
CUDA_DETAILS = re.compile(r" ; GPU=-?\d+ ;.*")
# A node that fails although its input is fine: the device failed, or the run was stopped.
OURS = re.compile(r"CUDA|CUDNN|CUBLAS|terminate flag")


def reason(text: str) -> str:
    """One line of ONNX Runtime's message, without error codes and source positions: "Reshape: ..."."""
    line = next((line for line in text.splitlines() if line.strip()), text).strip()
    line = NODE.sub(r"\1: ", LOADING.sub("", CODE.sub("", line)))
    return CUDA_DETAILS.sub("", FILE.sub("", CHECK.sub("", line)))[:300]


def is_of_device(error: Exception) -> bool:
    """Whether CUDA or one of its libraries failed."""
    return re.search(r"CUDA (failure|error)|CUDNN failure|CUBLAS failure|cudaError", str(error)) is not None


def failed_operator(error: Exception) -> str:
    """The operator that a run failed at; "" where none is named."""
    found = NODE.findall(str(error))
    return found[-1] if found else ""


def run_failure(error: Exception) -> ServeError:
    """A run that failed: the input's fault (400) where an operator refuses what it is given, ours otherwise (500).

    A model is served after it has run on what it declares, so what an operator refuses is in the request.
    """
    if isinstance(error, UnicodeDecodeError):
        return ServeError(
            "the model computes a string that is not UTF-8", expected="UTF-8, as strings in ONNX are", got=str(error),
            hint="another input, or a model with an output of UINT8",
        )  # fmt: skip
    text, operator = str(error), failed_operator(error)
    if NEGATIVE_SIZE in text:
        what = "this request asks the model for a tensor of a negative size"
        got = f"a negative one for {operator or 'an operator'}"
        return ServeError(what, status=400, expected="sizes of 0 or more", got=got, hint=HINT)
    refused = type(error).__name__ == "InvalidArgument" or (operator and not OURS.search(text))
    return ServeError(
        "the model cannot run on this input",
        status=400 if refused else 500,
        got=reason(text),
        hint=HINT if refused else None,
    )


def refused_file(path: Path, opset: int, version: str, text: str) -> LoadError:
    """A file that ONNX Runtime of this version does not load: its reason, in the one format."""
    what = f"ONNX Runtime {version} cannot load {path}"
    supported = re.search(r"support for domain ai\.onnx is till opset (\d+)", text)
    if supported:
        expected = f"opset {supported[1]} or lower"
        return LoadError(what, expected=expected, got=f"opset {opset}", hint="ox export --opset 21")
    ir_version = re.search(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)", text)
    if ir_version:
        hint = "write the file with a lower ir_version"
        return LoadError(
            what, expected=f"IR version {ir_version[2]} or lower", got=f"IR version {ir_version[1]}", hint=hint
        )
    unknown = re.search(r"No Op registered for (\S+) with domain_version of (\d+)", text)
    if unknown:
        got = f"operator {unknown[1]}, unknown at version {unknown[2]} of its domain"
        return LoadError(what, got=got, hint="a file of ai.onnx operators alone; ox export writes no others")
    return LoadError(what, got=reason(text))
