"""ONNX Runtime in Python."""

import onnxruntime
from runner import Feed, Loaded, main


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


main(onnxruntime.__version__, load)
