"""Reads the sequence settings of a model: `sequence_batching` in config.pbtxt, `sequence` in ox.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ox.errors import LoadError
from ox.graph.contract import TensorInfo
from ox.serve.batching.sequence_config import IDLE_S, KINDS, SLOTS, Control, SequenceBatching, State
from ox.serve.batching.sequence_tensors import SequenceTensors
from ox.serve.repository.setup import Running

MAX_FILE_BYTES = 64 << 20  # bytes of a state in a file
FOLDER = "initial_state"  # where a model's files of states lie, as with Triton
MAX_IDLE_S = 1e6
MAX_SLOTS = 1 << 20
FLAGS = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}
EXAMPLE = '{start = "START", state = {h_in = "h_out"}, idle_s = 60, max_sequences = 100}'


def from_message(config: Any, max_batch_size: int, model: str, where: str) -> tuple[SequenceBatching, dict[str, Any]]:
    """A ModelSequenceBatching, and what it changes of the model's options.

    Raises:
        LoadError: contradictory settings, or an unsupported feature.
    """

    def wrong(what: str, expected: str, got: str) -> LoadError:
        return LoadError(f"{model}: {what}", where=where, expected=expected, got=got)

    if config.iterative_sequence:
        raise wrong("iterative sequences are not supported", "iterative_sequence: false", "true")
    batched = max_batch_size > 0
    controls = tuple(_control(entry, wrong) for entry in config.control_input)
    states = tuple(_state(entry, batched, wrong) for entry in config.state)
    idle_s = config.max_sequence_idle_microseconds / 1e6 or IDLE_S
    if idle_s > MAX_IDLE_S:
        raise wrong("max_sequence_idle_microseconds is out of range", f"at most {MAX_IDLE_S:g} s", f"{idle_s:g} s")
    changes: dict[str, Any] = {} if batched else {"max_rows": 0}
    if config.WhichOneof("strategy_choice") == "oldest":
        oldest = config.oldest
        if not 0 <= oldest.max_candidate_sequences <= MAX_SLOTS:
            expected, got = f"0 to {MAX_SLOTS:,}", str(oldest.max_candidate_sequences)
            raise wrong("max_candidate_sequences is out of range", expected, got)
        delay, utilization, preferred = oldest.max_queue_delay_microseconds, 1.0, tuple(oldest.preferred_batch_size)
        slots, strategy = oldest.max_candidate_sequences or SLOTS, "oldest"
        if batched and preferred:
            changes["max_rows"] = max(preferred)
    else:  # Triton's default
        delay, utilization = config.direct.max_queue_delay_microseconds, config.direct.minimum_slot_utilization
        slots, strategy, preferred = max(1, max_batch_size), "direct", ()
        if not 0 <= utilization <= 1:
            raise wrong("minimum_slot_utilization is out of range", "0 to 1", str(utilization))
    if delay and utilization:
        changes["max_wait_ms"] = delay / 1000
    sequence = SequenceBatching(
        controls, states, idle_s, strategy, slots, True, utilization, batched, int(delay), preferred
    )
    return _checked(sequence, wrong), changes


def from_table(table: Any, path: Path, where: str) -> SequenceBatching:
    """The `sequence` of a model in ox.toml.

    Raises:
        LoadError: a key is unknown, or its value is not what it should be.
    """

    def wrong(what: str, expected: str, got: str) -> LoadError:
        return LoadError(f"{path}: {what}", where=where, expected=expected, got=got[:200])

    if not isinstance(table, dict):
        raise wrong("sequence is not a table", EXAMPLE, repr(table))
    known = (*KINDS, "state", "idle_s", "max_sequences")
    unknown = next((key for key in table if key not in known), None)
    if unknown is not None:
        raise wrong(f"unknown setting '{unknown}' of sequence", ", ".join(known), unknown)
    names = {kind: table[kind] for kind in KINDS if kind in table}
    states = table.get("state", {})
    if not isinstance(states, dict) or not all(
        isinstance(name, str) and name for name in (*states.values(), *names.values())
    ):
        raise wrong("sequence names no inputs and outputs", EXAMPLE, repr(table))
    idle_s, slots = table.get("idle_s", IDLE_S), table.get("max_sequences", SLOTS)
    if type(idle_s) not in (int, float) or not 0 < idle_s <= MAX_IDLE_S:
        raise wrong("idle_s is out of range", f"more than 0, at most {MAX_IDLE_S:g}", repr(idle_s))
    if type(slots) is not int or not 1 <= slots <= MAX_SLOTS:
        raise wrong("max_sequences is out of range", f"1 to {MAX_SLOTS:,}", repr(slots))
    sequence = SequenceBatching(
        tuple(Control(kind, name) for kind, name in names.items()),
        tuple(State(input, output) for input, output in states.items()),
        float(idle_s),
        slots=slots,
    )
    return _checked(sequence, wrong)


def tensors_of(
    running: Running, name: str, folder: Path, inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...]
) -> SequenceTensors:
    """The controls and states of a model whose files lie in `folder`.

    Raises:
        LoadError: the configuration and the file contradict each other, or a file of a state cannot be read.
    """
    assert running.sequence is not None
    config = running.sequence
    shown = {entry.name for entry in running.outputs}
    states = {state.output for state in config.states}
    for entry in running.outputs:
        if entry.name in states and entry.reshape is not None:
            what = f"{name}: a state cannot be reshaped"
            raise LoadError(what, where=f"output '{entry.name}'", hint="the output without reshape")
    files = {state.data_file: _read(folder, state.data_file) for state in config.states if state.data_file}
    return SequenceTensors(name, config, inputs, outputs, shown, files)


def _control(entry: Any, wrong: Any) -> Control:
    if len(entry.control) != 1:
        raise wrong(f"control_input '{entry.name}' is not one control", "one `control`", f"{len(entry.control)}")
    control = entry.control[0]
    kind = control.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[control.kind].name
    kind = next(key for key, name in KINDS.items() if kind == f"CONTROL_SEQUENCE_{name}")
    if kind == "id":
        return Control(kind, entry.name, _dtype(control))
    values = {dtype: list(getattr(control, field)) for field, dtype in FLAGS.items() if len(getattr(control, field))}
    if len(values) != 1 or len(next(iter(values.values()))) != 2:
        expected = f"one of {', '.join(FLAGS)}, with two values"
        raise wrong(f"control_input '{entry.name}' has no values for false and true", expected, repr(values))
    ((dtype, (false, true)),) = values.items()
    return Control(kind, entry.name, dtype, false, true)


def _state(entry: Any, batched: bool, wrong: Any) -> State:
    dims: tuple[int, ...] | None = tuple(entry.dims)
    if dims:
        dims = (-1, *dims) if batched else dims
    if len(entry.initial_state) > 1:
        expected, got = "one `initial_state`", str(len(entry.initial_state))
        raise wrong(f"state '{entry.input_name}' has several initial states", expected, got)
    state = State(entry.input_name, entry.output_name, _dtype(entry), dims or None)
    for initial in entry.initial_state:
        file = initial.data_file or None
        if file is not None and ("/" in file or "\0" in file or file in (".", "..")):
            raise wrong("a file name contains folders", "a name without folders", repr(file))
        if any(dim < 1 for dim in initial.dims):
            expected, got = "sizes from 1 on", str(list(initial.dims))
            raise wrong(f"the initial_state of '{entry.input_name}' has no shape", expected, got)
        if _dtype(initial) not in (None, state.dtype):
            expected, got = str(state.dtype), str(_dtype(initial))
            raise wrong(f"the initial_state of '{entry.input_name}' has another type", expected, got)
        state = state._replace(initial_dims=tuple(initial.dims), initial_name=initial.name, data_file=file)
    return state


def _dtype(entry: Any) -> str | None:
    name = str(entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[entry.data_type].name)
    return {"TYPE_INVALID": None, "TYPE_STRING": "BYTES"}.get(name, name.removeprefix("TYPE_"))


def _checked(sequence: SequenceBatching, wrong: Any) -> SequenceBatching:
    groups = {
        "control": [control.kind for control in sequence.controls],
        "input": [*(control.name for control in sequence.controls), *(state.input for state in sequence.states)],
        "output": [state.output for state in sequence.states],
    }
    for what, names in groups.items():
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise wrong(f"the {what} '{twice}' of its sequences is given twice", "each once", ", ".join(names))
    return sequence


def _read(folder: Path, name: str) -> bytes:
    path = folder / FOLDER / name
    if not path.resolve().is_relative_to(folder.resolve()):
        got = f"a link to {path.resolve()}"
        raise LoadError(f"{path} leads out of its folder", got=got, hint="a copy instead of the link")
    try:
        if not path.is_file():
            raise LoadError(f"{path} cannot be read", expected="a regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise LoadError(f"{path} cannot be read", got=error.strerror or str(error)) from error
    if len(data) > MAX_FILE_BYTES:
        raise LoadError(f"{path} is too large", expected=f"at most {MAX_FILE_BYTES >> 20} MiB")
    return data
