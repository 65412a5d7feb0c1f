"""What the runners share: one file, one run, in a process without ox.

    python NAME.py model.onnx inputs.npz outputs.npz NAMES

NAMES are those of the outputs, with commas between them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

Feed = dict[str, np.ndarray]
Loaded = Callable[[Feed], list[np.ndarray]]


def main(version: str, load: Callable[[str, Feed, list[str]], Loaded]) -> None:
    """Load a file, run it, and write its outputs in their order. Prints the version and how long both took.

    Args:
        load: takes the file, the inputs by name, of which it may use the sizes, and the names of the outputs; returns
            what runs them.
    """
    path, inputs, outputs, names = sys.argv[1:]
    with np.load(inputs) as file:
        feed = {name: file[name] for name in file.files}
    print(json.dumps({"version": version}), flush=True)
    begin = time.perf_counter()
    try:
        run = load(path, feed, names.split(","))
        loaded = time.perf_counter()
        results = run(feed)
    except Exception as error:  # whatever a runtime raises is what a person wants to read
        kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
        print(json.dumps({"reason": f"{kind}{error}"}))
        sys.exit(1)
    done = time.perf_counter()
    np.savez(outputs, *[np.asarray(array) for array in results])
    print(json.dumps({"load": loaded - begin, "run": done - loaded}))


def printed(call: Callable[[], object]) -> str:
    """What a call prints, also from below Python: some converters say only there what they lack."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            call()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode(errors="replace")
