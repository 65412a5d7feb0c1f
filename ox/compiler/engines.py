"""The engines by the names that `ox.compile` takes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from ox.engines.engine import Engine
from ox.errors import CompileError

SAME = {"inductor": "native", "cudagraphs": "native", "aot_eager": "eager", "aot_eager_decomp_partition": "eager"}


def engine_of(backend: Any, options: dict[str, Any] | None) -> Engine:
    """An engine from its name, or itself. PyTorch's "inductor" is "native", its "aot_eager" is "eager".

    Raises:
        CompileError: no engine has that name.
    """
    if not isinstance(backend, str):
        if not hasattr(backend, "build"):
            raise CompileError(
                "this backend is no engine", got=type(backend).__name__, expected="a name, or an ox.engines.Engine"
            )
        return backend  # type: ignore[no-any-return]
    name = SAME.get(backend, backend)
    kind: Any
    if name == "eager" or (name == "native" and find_spec("ox.engines.native") is None):
        from ox.engines.reference import Reference as kind
    elif name == "native":
        from ox.engines.native import Native as kind
    elif name == "onnxruntime":
        from ox.engines.onnxruntime import OnnxRuntime as kind
    elif name == "openvino":
        from ox.engines.openvino import OpenVino as kind
    else:
        raise CompileError(
            f"there is no backend {backend!r}", expected="'native', 'eager', 'onnxruntime' or 'openvino'"
        )
    return kind(**(options or {}))  # type: ignore[no-any-return]
