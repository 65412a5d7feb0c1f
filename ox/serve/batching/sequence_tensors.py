"""What a model of sequences takes and gives beside what its clients see: controls and states, as arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ox.errors import LoadError, ServeError
from ox.graph.contract import DTYPES, Array, Dim, TensorInfo
from ox.serve.batching.sequence_config import Control, SequenceBatching, State
from ox.serve.config.dimension_limits import DimensionLimits, Most
from ox.serve.runtime.instance import Feed

IDS = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")
FLAGS = ("INT32", "FP32", "BOOL")

States = tuple[Array, ...]


class SequenceTensors:
    """A configuration of sequences, held against the model.

    Args:
        model: its name, for errors.
        config: its sequence configuration.
        inputs, outputs: all that the file has.
        shown: outputs that clients see although they are states.
        files: the bytes of each `data_file`.

    `initial` is what a sequence begins with; `inputs` and `outputs` are what clients see.

    Raises:
        LoadError: the configuration and the file contradict each other.
    """

    def __init__(
        self,
        model: str,
        config: SequenceBatching,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        shown: set[str],
        files: Mapping[str, bytes],
    ) -> None:
        self._model, self.config = model, config
        by_name = {info.name: info for info in inputs}
        places = {info.name: place for place, info in enumerate(outputs)}
        self._flags: list[tuple[str, str, Array, Array]] = []
        self._id: tuple[str, str, tuple[int, ...]] | None = None
        for control in config.controls:
            info = self._found(by_name, control.name, "control_input")
            shape = self._control_shape(control, info)
            if control.kind == "id":
                self._id = control.name, info.dtype, shape
            else:
                dtype = DTYPES[info.dtype]
                values = np.full(shape, control.false, dtype), np.full(shape, control.true, dtype)
                self._flags.append((control.kind, control.name, *values))
        self._limits: list[tuple[int, DimensionLimits]] = []
        self._rows = inputs[0].dims[:1] if inputs else ()
        self._states = [(state.input, self._place(state, by_name, outputs, places)) for state in config.states]
        self._state_infos = [by_name[state.input] for state in config.states]
        self.initial: States = tuple(
            self._initial(state, by_name[state.input], config.batched, files) for state in config.states
        )
        hidden = {state.output for state in config.states} - shown
        self.inputs = tuple(info for info in inputs if info.name not in config.inputs)
        self.visible = [place for place, info in enumerate(outputs) if info.name not in hidden]
        self.outputs = tuple(outputs[place] for place in self.visible)
        self._one_row = config.batched
        if self._one_row is None:  # rows are counted by the first dimension that all of them have, and that varies
            self._one_row = all(info.dims and not isinstance(info.dims[0], int) for info in inputs)
        self._grouped = any(
            not isinstance(size, int) for state in config.states for size in by_name[state.input].dims[1:]
        )

    def check(self, identifier: int | str, rows: int) -> None:
        """Whether a request can be one of a sequence.

        Raises:
            ServeError: it has several rows, or the model cannot take its sequence's id.
        """
        if self._one_row and rows != 1:
            what = f"inference request to model '{self._model}' must specify batch-size 1, as one of a sequence"
            raise ServeError(what, expected="one sample", got=f"{rows} samples")
        if self._id is not None:
            self._identifier(identifier)

    def limit_dimensions(self, most: Most) -> None:
        """From now on `check_states` holds states against the most that dimensions of their inputs may be."""
        limits = [DimensionLimits("state", info, most, self._rows) for info in self._state_infos]
        self._limits = [(place, limit) for place, limit in enumerate(limits) if limit.axes]

    def check_states(self, states: States) -> None:
        """Raises ServeError (413) if a state has grown beyond what its dimensions may be."""
        for place, limit in self._limits:
            limit.check(states[place].shape)

    def describe(self, error: ServeError, states: States | None) -> ServeError:
        """The refusal of an input, with the states whose sizes vary: clients cannot see what did not fit them.

        Args:
            error: of a run.
            states: those of the sequence; None if it was its start.
        """
        if not self._grouped:
            return error
        shapes = [
            f"state '{name}' of {list(array.shape)}"
            for (name, _), array in zip(self._states, self.initial if states is None else states, strict=True)
        ]
        hint = "inputs that fit the state, or sequence_start, which begins with the initial state"
        return ServeError(
            error.what, status=error.status, where=", ".join(shapes), expected=error.expected, got=error.got, hint=hint
        )

    @property
    def id_dtype(self) -> str | None:
        """The type of the input that gets a sequence's id; None for no such input."""
        return None if self._id is None else self._id[1]

    def fill(self, feed: Feed, identifier: int | str, start: bool, end: bool, states: States) -> tuple[Any, ...]:
        """Adds controls and states to a request's own inputs; what must be equal for requests that share a batch."""
        for kind, name, false, true in self._flags:
            feed[name] = true if {"start": start, "end": end, "ready": True}[kind] else false
        if self._id is not None:
            feed[self._id[0]] = self._identifier(identifier)
        for (name, _), array in zip(self._states, states, strict=True):
            feed[name] = array
        return tuple(array.shape[1:] for array in states) if self._grouped else ()

    def states_of(self, outputs: Sequence[Array]) -> States:
        """The states after a request; copies, because what a batch gives is one array for all of it."""
        return tuple(np.array(outputs[place]) for _, place in self._states)

    def visible_outputs(self, outputs: Sequence[Array]) -> list[Array]:
        """What clients see of the model's outputs."""
        return [outputs[place] for place in self.visible]

    def _identifier(self, identifier: int | str) -> Array:
        assert self._id is not None
        name, dtype, shape = self._id
        array = np.empty(shape, DTYPES[dtype])
        try:
            array.fill(str(identifier) if dtype == "BYTES" else _whole(identifier, DTYPES[dtype]))
        except (TypeError, OverflowError):
            what = f"the sequence_id does not fit the input '{name}' of model '{self._model}'"
            raise ServeError(what, expected=dtype, got=repr(identifier)[:200]) from None
        return array

    def _wrong(self, name: str, field: str, expected: str, got: str) -> LoadError:
        return LoadError(
            f"{self._model}: sequence_batching does not match the file", where=f"{field} '{name}'", expected=expected,
            got=got,
        )  # fmt: skip

    def _found(self, infos: Mapping[str, TensorInfo], name: str, field: str) -> TensorInfo:
        if name not in infos:
            raise self._wrong(name, field, ", ".join(map(str, infos.values())), "no such tensor")
        return infos[name]

    def _control_shape(self, control: Control, info: TensorInfo) -> tuple[int, ...]:
        allowed = IDS if control.kind == "id" else FLAGS
        if info.dtype not in allowed or control.dtype not in (None, info.dtype):
            expected = f"{control.name} {control.dtype or ' or '.join(allowed)}"
            raise self._wrong(control.name, "control_input", expected, str(info))
        if not 1 <= len(info.dims) <= 2 or any(isinstance(size, int) and size != 1 for size in info.dims):
            raise self._wrong(control.name, "control_input", f"{control.name} {info.dtype} [batch, 1]", str(info))
        return (1,) * len(info.dims)

    def _place(
        self, state: State, inputs: Mapping[str, TensorInfo], outputs: Sequence[TensorInfo], places: Mapping[str, int]
    ) -> int:
        before = self._found(inputs, state.input, "state")
        after = self._found({info.name: info for info in outputs}, state.output, "state")
        for info in (before, after):
            if state.dtype not in (None, info.dtype) or not _agrees(state.dims, info.dims):
                dims = "" if state.dims is None else f" {list(state.dims)}"
                raise self._wrong(info.name, "state", str(info), f"{state.dtype or ''}{dims}")
        if before.dtype != after.dtype or len(before.dims) != len(after.dims) or before.dtype == "BYTES":
            expected = "an output of the same type and rank, numbers"
            raise self._wrong(state.input, "state", expected, f"{before}, {after}")
        return places[state.output]

    def _initial(self, state: State, info: TensorInfo, batched: bool | None, files: Mapping[str, bytes]) -> Array:
        said = state.dims or (-1,) * len(info.dims)
        shape = [
            dim if dim > 0 else size if isinstance(size, int) else 1 for dim, size in zip(said, info.dims, strict=True)
        ]
        if state.initial_dims is not None:
            shape = [1, *state.initial_dims] if batched else list(state.initial_dims)
            if not _agrees(tuple(shape), info.dims):
                raise self._wrong(state.input, "initial_state", str(info), str(list(state.initial_dims)))
        dtype = DTYPES[info.dtype]
        if state.data_file is None:
            return np.zeros(shape, dtype)
        data, size = files[state.data_file], math.prod(shape) * dtype.itemsize
        if len(data) != size:
            raise self._wrong(state.data_file, "data_file", f"{size} bytes, {info.dtype} {shape}", f"{len(data)} bytes")
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def _whole(identifier: int | str, dtype: np.dtype[Any]) -> int:
    if not isinstance(identifier, int):
        raise TypeError(identifier)
    bounds = np.iinfo(dtype)
    if not bounds.min <= identifier <= bounds.max:
        raise OverflowError(identifier)
    return identifier


def _agrees(said: tuple[int, ...] | None, dims: tuple[Dim, ...]) -> bool:
    return said is None or (
        len(said) == len(dims)
        and all(dim in (-1, size) or not isinstance(size, int) for dim, size in zip(said, dims, strict=True))
    )
