"""The reference implementation of ONNX, in NumPy."""

import onnx
from onnx.reference import ReferenceEvaluator
from runner import Feed, Loaded, main


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    session = ReferenceEvaluator(path)
    return lambda feed: session.run(None, feed)


main(onnx.__version__, load)
