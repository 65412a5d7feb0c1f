"""Configuration of sequences: control inputs and the states between requests, `sequence_batching`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

IDLE_S = 1.0  # Triton's default
SLOTS = 1024
KINDS = {"start": "START", "end": "END", "ready": "READY", "id": "CORRID"}


class Control(NamedTuple):
    """A control input: the position of a request in its sequence; `dtype` None takes the file's.

    `kind` is "start", "end" or "ready", which are `true` or `false`, or "id": the sequence's own.
    """

    kind: str
    name: str
    dtype: str | None = None
    false: float = 0
    true: float = 1


class State(NamedTuple):
    """An output that is an input of the sequence's next request; None if the file has it.

    `dims` has the batch in front where there is one, `initial_dims` has not. A sequence begins with what the file
    `data_file` holds, or with zeros.
    """

    input: str
    output: str
    dtype: str | None = None
    dims: tuple[int, ...] | None = None
    initial_dims: tuple[int, ...] | None = None
    initial_name: str = ""
    data_file: str | None = None


@dataclass(frozen=True)
class SequenceBatching:
    """The sequences of a model.

    Args:
        controls, states: inputs and outputs that clients do not see.
        idle_s: a sequence ends after so long without a request.
        strategy: "direct" or "oldest", how its configuration calls it.
        slots: sequences at once, of each instance if `per_instance`; more wait until one ends.
        utilization: the part of a full batch that is not waited for.
        batched: whether the first dimension counts rows; None where it does if it varies, in all inputs.
        max_delay_us, preferred: as configured.
    """

    controls: tuple[Control, ...] = ()
    states: tuple[State, ...] = ()
    idle_s: float = IDLE_S
    strategy: str = "oldest"
    slots: int = SLOTS
    per_instance: bool = False
    utilization: float = 1.0
    batched: bool | None = None
    max_delay_us: int = 0
    preferred: tuple[int, ...] = ()

    @property
    def inputs(self) -> set[str]:
        """The names of the inputs that clients do not send."""
        return {control.name for control in self.controls} | {state.input for state in self.states}

    def to_json(self) -> dict[str, Any]:
        """The fields of a ModelSequenceBatching."""
        answer: dict[str, Any] = {"max_sequence_idle_microseconds": round(1e6 * self.idle_s)}
        if self.controls:
            answer["control_input"] = [
                {"name": control.name, "control": [_control(control)]} for control in self.controls
            ]
        if self.states:
            answer["state"] = [self._state(state) for state in self.states]
        strategy: dict[str, Any] = {"max_queue_delay_microseconds": self.max_delay_us} if self.max_delay_us else {}
        if self.strategy == "direct":
            strategy["minimum_slot_utilization"] = self.utilization
        else:
            strategy["max_candidate_sequences"] = self.slots
            if self.preferred:
                strategy["preferred_batch_size"] = list(self.preferred)
        return {**answer, self.strategy: strategy}

    def _state(self, state: State) -> dict[str, Any]:
        answer: dict[str, Any] = {"input_name": state.input, "output_name": state.output}
        if state.dtype is not None:
            answer["data_type"] = f"TYPE_{state.dtype}"
        if state.dims is not None:
            answer["dims"] = list(state.dims[1:] if self.batched else state.dims)
        if state.initial_dims is not None:
            data = {"zero_data": True} if state.data_file is None else {"data_file": state.data_file}
            kind = {"data_type": answer["data_type"]} if "data_type" in answer else {}
            answer["initial_state"] = [{"name": state.initial_name, **kind, "dims": list(state.initial_dims), **data}]
        return answer


def _control(control: Control) -> dict[str, Any]:
    answer: dict[str, Any] = {"kind": f"CONTROL_SEQUENCE_{KINDS[control.kind]}"}
    values = [control.false, control.true]
    if control.kind == "id":
        if control.dtype is not None:
            answer["data_type"] = "TYPE_STRING" if control.dtype == "BYTES" else f"TYPE_{control.dtype}"
    elif control.dtype == "FP32":
        answer["fp32_false_true"] = [float(value) for value in values]
    elif control.dtype == "BOOL":
        answer["bool_false_true"] = [bool(value) for value in values]
    else:
        answer["int32_false_true"] = [int(value) for value in values]
    return answer
