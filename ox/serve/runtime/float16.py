"""A float32 file that is served in float16: converted when it is loaded, in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from ox.errors import LoadError
from ox.graph.contract import Contract
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.source import Source, read
from ox.serve.workers.subprocess_environment import subprocess_environment

# As `ox quantize --scheme float16`; in a process of its own, which can be ended, because the server loads no ox.export.
CODE = """
import json, sys
from ox.errors import OxError
from ox.export import quantize
answer = {}
try:
    quantize(sys.argv[1], sys.argv[2], "float16")
except OxError as error:
    answer = {name: getattr(error, name) for name in ("what", "expected", "got", "hint")}
print(json.dumps(answer), flush=True)
"""


def to_float16(source: Source, contract: Contract, control: LoadControl) -> tuple[Source, Contract]:
    """The file in float16, with inputs and outputs as they were, and what holds for it: the golden samples of the
    float32 file, within the tolerance of float16.

    Args:
        source: the file.
        contract: its own.
        control: ends it, and the process with it.

    Raises:
        LoadError: it has no golden samples that would show what float16 changes, or cannot be converted.
    """
    if not contract.samples:
        raise LoadError(
            f"{source.path} has no golden samples, and float16 changes its outputs",
            expected="golden samples, which the float16 model is compared with",
            got="dtype = 'float16'",
            hint="export it with ox; or ox quantize --scheme float16, and no dtype",
        )
    control.enter("converting it to float16")
    try:
        folder = Path(mkdtemp(prefix="ox-float16-"))
    except OSError as error:
        raise LoadError(f"{source.path} cannot be converted to float16", got=str(error)) from error
    path = folder / source.path.name
    try:
        _convert(source.path, path, control)
        made = read(path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)  # sessions are made later, too
    return made, replace(contract, precision="float16", tolerance=None)


def _convert(path: Path, result: Path, control: LoadControl) -> None:
    command, pipe = (sys.executable, "-P", "-c", CODE, str(path), str(result)), subprocess.PIPE
    try:
        child = subprocess.Popen(command, stdout=pipe, stderr=pipe, env=subprocess_environment())
        with child:
            control.add_stop(child.kill)
            out, err = child.communicate()
            control.forget(child.kill)
        control.check()
        error = json.loads(out.splitlines()[-1] if out.strip() else b"null")
    except LoadError:  # the reason why it was ended, which is a ValueError as well
        raise
    except (OSError, ValueError) as failure:
        raise LoadError(f"{path} cannot be converted to float16", got=str(failure)) from failure
    if error is None or child.returncode:
        lines = err.decode(errors="replace").strip().splitlines()
        got = f"exit code {child.returncode}" + (f": {lines[-1][:200]}" if lines else "")
        raise LoadError(f"{path} cannot be converted to float16", got=got)
    if error:
        raise LoadError(f"{path} cannot be served in float16: {error.pop('what')}", **error)
