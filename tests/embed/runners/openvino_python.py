"""OpenVINO on the CPU, in float32: it would take bfloat16 where the processor has it."""

import re

import openvino
from runner import Feed, Loaded, main


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    try:
        compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    except RuntimeError as error:
        why = re.findall(r"While validating ONNX node .*?\n(.*?)\n", str(error))
        which = re.search(r"Conversion is failed for: (.*)", str(error))
        raise RuntimeError(f"cannot convert {which[1]}: {' '.join(why)}" if which else str(error)) from None
    return lambda feed: list(compiled(feed).values())


main(openvino.__version__.split("-")[0], load)
