"""What is what in the file of a training step: written into it as JSON, so that a driver needs no convention."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

KEY = "ox.step"  # in `metadata_props` of the ONNX file, and in the header of the safetensors file
LOSS, RATE = "loss", "lr"
RANDOM_KEY, RANDOM_COUNTER = "random.key", "random.counter"


def following(name: str) -> str:
    """The output that is an input's value for the next step."""
    return f"{name}.next"


@dataclass(frozen=True)
class Layout:
    """The inputs and outputs of a training step.

    Attributes:
        batch: the inputs that a driver feeds a batch into: those of the model, and the target.
        lr: the learning rates, by input; their values are those of the optimizer.
        state: the inputs that start with the arrays of `initial` and go on with an output: its name for each.
        kinds: of each input in `state`: ``parameter``, ``buffer``, ``optimizer`` or ``random``.
        loss: the output that is the loss.
        metrics: further outputs.
        outputs: the outputs of the model in the evaluation.
        initial: the name of the safetensors file beside the ONNX file, with an array for each name in `state`.
        evaluation: the name of the ONNX file beside it that takes the same batch and some of the state, and gives loss,
            metrics and the outputs of the model in eval mode.
        optimizer: the class of the optimizer.
        frozen: the parameters that the step does not change, which are initializers.
    """

    batch: tuple[str, ...]
    lr: Mapping[str, float]
    state: Mapping[str, str]
    kinds: Mapping[str, str]
    loss: str
    metrics: tuple[str, ...]
    outputs: tuple[str, ...]
    initial: str
    evaluation: str
    optimizer: str
    frozen: tuple[str, ...]

    def to_json(self) -> str:
        """One JSON object with the attributes as keys."""
        return json.dumps({"version": 1, **asdict(self)}, separators=(",", ":"))
