"""TVM: imported into Relax for the sizes of the inputs, compiled with LLVM."""

import numpy as np
import onnx
import tvm
from runner import Feed, Loaded, main
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    module = from_onnx(onnx.load(path), shape_dict={name: list(x.shape) for name, x in feed.items()})
    target = tvm.target.Target("llvm")
    machine = relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())

    def run(feed: Feed) -> list[np.ndarray]:
        results = machine["main"](*[tvm.runtime.tensor(x) for x in feed.values()])
        return [y.numpy() for y in (results if isinstance(results, (tuple, list, tvm.ir.Array)) else [results])]

    return run


main(tvm.__version__, load)
