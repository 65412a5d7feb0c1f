"""The engines by the names that `ox.compile` takes."""

from __future__ import annotations

from typing import Any

from ox.engines import ENGINES, find
from ox.engines.engine import Engine
from ox.errors import CompileError

# PyTorch's names
SAME = {"inductor": "native", "cudagraphs": "native", "aot_eager": "eager"}


def engine_of(backend: Any, options: dict[str, Any] | None) -> Engine:
    """An engine from its name, or itself; None is "native". PyTorch's "inductor" is "native", its "aot_eager" "eager".

    Raises:
        CompileError: no engine has that name.
        ArgumentError: the engine does not take these options.
    """
    if backend is None:
        backend = "native"
    if not isinstance(backend, str):
        if not hasattr(backend, "build"):
            raise CompileError(
                "this backend is no engine",
                got=type(backend).__name__,
                expected="a name, or an Engine",
            )
        given: Engine = backend
        return given
    name = SAME.get(backend, backend)
    if name not in ENGINES:
        raise CompileError(f"there is no backend {backend!r}", expected=", ".join(ENGINES))
    return find(name, **(options or {}))
