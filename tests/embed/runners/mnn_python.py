"""MNN: its converter writes its own format first. The program `mnnconvert` is not called: behind the same function it
installs a package into whatever Python comes first on the path, and reports the file to a server."""

from pathlib import Path

import _tools
import MNN
import numpy as np
from runner import Feed, Loaded, main, printed


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    converted = Path(path).with_suffix(".mnn")
    converted.unlink(missing_ok=True)
    words = ["-f", "ONNX", "--modelFile", path, "--MNNModel", str(converted), "--bizCode", "MNN"]
    said = printed(lambda: _tools.mnnconvert(["mnnconvert", *words]))
    if not converted.is_file():
        lacks = [line.partition("Not Support: ")[2] for line in said.splitlines() if "Not Support" in line]
        raise RuntimeError(f"the converter does not support {' '.join(lacks)}" if lacks else said[-200:])
    net = MNN.nn.load_module_from_file(str(converted), list(feed), outputs)

    def run(feed: Feed) -> list[np.ndarray]:
        inputs = []
        for array in feed.values():
            fractions = array.dtype.kind == "f"  # it has no integers of 64 bits
            kind = MNN.expr.float if fractions else MNN.expr.int
            placeholder = MNN.expr.placeholder(list(array.shape), MNN.expr.NCHW, kind)
            placeholder.write(array if fractions else array.astype(np.int32))
            inputs.append(placeholder)
        return [MNN.expr.convert(y, MNN.expr.NCHW).read() for y in net.forward(inputs)]

    return run


main(MNN.version(), load)
