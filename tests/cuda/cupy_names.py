"""What the installed CuPy has: its names, and the parameters that they take. Neither needs a driver.

`python tests/cuda/cupy_names.py` writes cupy_names.json again, for a newer CuPy. The tests compare ox with that file,
and the file with CuPy where it is installed.
"""

from __future__ import annotations

import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("cupy_names.json")
MODULES = ["cupy", "cupy.linalg", "cupy.fft", "cupy.cuda", "cupy.cuda.runtime", "cupyx"]
CLASSES = ["ndarray", "ufunc"]
DECLARATION = re.compile(r"[\w.]+\((?P<parameters>[^)]*)\)")  # how Cython's docstrings begin


def parameters(value: Any) -> str | None:
    """The names of what a callable takes, `**` where it takes any keyword; None where it does not say."""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        lines = (inspect.getdoc(value) or "").splitlines()
        declared = DECLARATION.match(lines[0]) if lines else None
        if declared is None:
            return None
        names = [part.partition("=")[0].partition(":")[0].split() for part in declared["parameters"].split(",")]
        return ", ".join(name[-1] for name in names if name and name[-1] not in ("self", "/", "*"))
    prefix = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    return ", ".join(prefix.get(p.kind, "") + p.name for p in found if p.name != "self")


def describe(value: Any) -> str:
    """What a name stands for: "module", "value", "ufunc", "class(...)" or "function(...)"."""
    if inspect.ismodule(value):
        return "module"
    if type(value).__name__ == "ufunc":
        return "ufunc"
    if not callable(value):
        return "value"
    taken = parameters(value)
    return ("class" if inspect.isclass(value) else "function") + ("" if taken is None else f"({taken})")


def names() -> dict[str, Any]:
    """The names of each module and class of CuPy, with what they stand for."""
    cupy = import_module("cupy")
    owners: dict[str, Any] = {module: import_module(module) for module in MODULES}
    owners |= {name: getattr(cupy, name) for name in CLASSES}
    found: dict[str, Any] = {"version": cupy.__version__}
    for name, owner in owners.items():
        found[name] = {n: describe(getattr(owner, n)) for n in sorted(dir(owner)) if not n.startswith("_")}
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(names(), indent=0) + "\n")
