"""What is said about sequences, in config.pbtxt and in ox.toml, and how it is told back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from onnx import TensorProto
from rows import rows

from ox.errors import LoadError
from ox.serve import Server
from ox.serve.batching.sequence_config import Control, SequenceBatching, State
from ox.serve.config.model_config import ModelConfig
from ox.serve.protocol.grpc.proto import message
from ox.serve.repository.pbtxt import from_text
from ox.serve.repository.setup import Running, Setup
from ox.serve.repository.toml import apply_table
from ox.serve.repository.triton import merged

BASE = Setup(Running(ModelConfig(deadline_ms=1000)))
START = "control_input { name: 'S' control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }"


def read(folder: Path, text: str) -> Setup:
    path = folder / "config.pbtxt"
    path.write_text(text)
    config, unknown = from_text(path)
    return merged(BASE, config, "m", str(path), unknown)


def test_everything(tmp_path: Path) -> None:
    setup = read(
        tmp_path,
        """
        max_batch_size: 16
        sequence_batching {
          max_sequence_idle_microseconds: 5000000
          control_input [
            { name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
            { name: "E" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },
            { name: "R" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ -1, 2 ] } ] },
            { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] }
          ]
          state [
            { input_name: "h" output_name: "h_out" data_type: TYPE_FP32 dims: [ -1, 4 ]
              initial_state { name: "zeros" data_type: TYPE_FP32 dims: [ 1, 4 ] zero_data: true } },
            { input_name: "c" output_name: "c_out" use_growable_memory: true }
          ]
          oldest { max_candidate_sequences: 3 preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 500 }
        }
        """,
    )
    sequence = setup.running.sequence
    assert sequence == SequenceBatching(
        (
            Control("start", "S", "FP32", 0, 1),
            Control("end", "E", "BOOL", False, True),
            Control("ready", "R", "INT32", -1, 2),
            Control("id", "C", "BYTES"),
        ),
        (State("h", "h_out", "FP32", (-1, -1, 4), (1, 4), "zeros"), State("c", "c_out")),
        5.0, "oldest", 3, True, 1.0, True, 500, (2, 4),
    )  # fmt: skip
    assert setup.unmapped == () and setup.running.options == ModelConfig(deadline_ms=1000, max_rows=4, max_wait_ms=0.5)
    # What is told back means the same.
    config = message("inference.ModelConfig")()
    json_format.ParseDict({"max_batch_size": 16, "sequence_batching": sequence.to_json()}, config)
    assert merged(BASE, config, "m", "", []).running.sequence == sequence


def test_what_is_not_said(tmp_path: Path) -> None:
    sequence = read(tmp_path, "max_batch_size: 4 sequence_batching {}").running.sequence
    assert sequence == SequenceBatching(
        strategy="direct", slots=4, per_instance=True, utilization=0.0, batched=True, idle_s=1.0
    )
    setup = read(tmp_path, "sequence_batching { oldest {} }")
    assert setup.running.sequence == SequenceBatching(per_instance=True, batched=False)
    assert setup.running.options.max_rows == 0
    assert read(tmp_path, "").running.sequence is None


def test_how_long_a_batch_is_waited_for(tmp_path: Path) -> None:
    delay = "max_queue_delay_microseconds: 2000"
    setup = read(tmp_path, f"max_batch_size: 8 sequence_batching {{ direct {{ {delay} }} }}")
    assert setup.running.options.max_wait_ms == 0  # nothing is waited for without a utilization
    setup = read(
        tmp_path, f"max_batch_size: 8 sequence_batching {{ direct {{ {delay} minimum_slot_utilization: 0.5 }} }}"
    )
    assert setup.running.options.max_wait_ms == 2
    assert setup.running.sequence is not None
    assert setup.running.sequence.to_json()["direct"] == {
        "max_queue_delay_microseconds": 2000, "minimum_slot_utilization": 0.5,
    }  # fmt: skip


@rows(
    ("text", "words"),
    [
        ("iterative_sequence: true", "iterative sequences are not supported"),
        ("control_input { name: 'S' }", "is not one control"),
        ("control_input { name: 'S' control { } }", "no values for false and true"),
        ("control_input { name: 'S' control { int32_false_true: [1] } }", "no values for false and true"),
        ("control_input { name: 'S' control { int32_false_true: [0, 1] fp32_false_true: [0, 1] } }", "no values"),
        (START + START, "the control 'start' of its sequences is given twice"),
        (START + "state { input_name: 'S' output_name: 'o' }", "the input 'S' of its sequences is given twice"),
        ("state { input_name: 'i' output_name: 'o' initial_state {} initial_state {} }", "has several initial"),
        ("state { input_name: 'i' output_name: 'o' initial_state { dims: [-1] } }", "has no shape"),
        ("state { input_name: 'i' output_name: 'o' initial_state { data_file: '../x' } }", "contains folders"),
        ("state { input_name: 'i' data_type: TYPE_FP32 initial_state { data_type: TYPE_INT8 } }", "another type"),
        ("oldest { max_candidate_sequences: -1 }", "max_candidate_sequences is out of range"),
        ("direct { minimum_slot_utilization: 2 }", "minimum_slot_utilization is out of range"),
        ("max_sequence_idle_microseconds: 18446744073709551615", "max_sequence_idle_microseconds is out of range"),
        ("oldest { max_queue_delay_microseconds: 5000000 }", "max_wait_ms must be shorter"),
    ],
)
def test_what_cannot_be(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        read(tmp_path, f"max_batch_size: 2 sequence_batching {{ {text} }}")
    assert words in caught.value.what and caught.value.what.startswith("m: ")
    assert "config.pbtxt" in str(caught.value.where)


def test_an_ox_toml(tmp_path: Path) -> None:
    table = {
        "sequence": {"start": "S", "id": "C", "state": {"h": "h_out"}, "idle_s": 60, "max_sequences": 7},
        "max_rows": 3,
    }  # fmt: skip
    running = apply_table(BASE, table, tmp_path / "ox.toml", "m").running
    assert running.sequence == SequenceBatching(
        (Control("start", "S"), Control("id", "C")), (State("h", "h_out"),), 60.0, slots=7
    )
    assert running.options.max_rows == 3


@rows(
    ("sequence", "words"),
    [
        (True, "sequence is not a table"),
        ({"begin": "S"}, "unknown setting 'begin' of sequence"),
        ({"start": 1}, "names no inputs and outputs"),
        ({"state": ["h"]}, "names no inputs and outputs"),
        ({"state": {"h": ""}}, "names no inputs and outputs"),
        ({"idle_s": 0}, "idle_s is out of range"),
        ({"idle_s": True}, "idle_s is out of range"),
        ({"max_sequences": 0}, "max_sequences is out of range"),
        ({"start": "S", "end": "S"}, "the input 'S' of its sequences is given twice"),
    ],
)
def test_a_wrong_ox_toml(tmp_path: Path, sequence: Any, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        apply_table(BASE, {"sequence": sequence}, tmp_path / "ox.toml", "m")
    assert words in caught.value.what and caught.value.where == "[models.m]"


@rows(
    ("text", "words"),
    [
        ("control_input { name: 'W' control { int32_false_true: [0, 1] } }", "control_input 'W'"),
        ("control_input { name: 'x' control { int32_false_true: [0, 1] } }", "control_input 'x'"),
        ("control_input { name: 'i' control { int32_false_true: [0, 1] } }", "control_input 'i'"),
        ("control_input { name: 'S' control { fp32_false_true: [0, 1] } }", "control_input 'S'"),
        ("control_input { name: 'S' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 } }", "input 'S'"),
        ("state { input_name: 'x' output_name: 'w' }", "state 'w'"),
        ("state { input_name: 'x' output_name: 'z' }", "state 'x'"),
        ("state { input_name: 'x' output_name: 'y' data_type: TYPE_INT8 }", "state 'x'"),
        ("state { input_name: 'x' output_name: 'y' dims: [5] }", "state 'x'"),
        ("state { input_name: 'x' output_name: 'y' initial_state { dims: [5] } }", "initial_state 'x'"),
        ("state { input_name: 't' output_name: 't_out' }", "state 't'"),
    ],
)
def test_what_contradicts_the_file(build: Any, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    kinds = {"x": (TensorProto.FLOAT, ["n", 4]), "S": (TensorProto.INT32, ["n", 1]), "i": (TensorProto.INT32, ["n", 2])}
    kinds["t"] = (TensorProto.STRING, ["n", 1])
    outputs = {"y": kinds["x"], "z": kinds["S"], "i_out": kinds["i"], "t_out": kinds["t"]}
    nodes = [("Identity", [i], [o], {}) for i, o in zip(kinds, outputs, strict=True)]
    build("model", nodes, kinds, outputs, folder=tmp_path / "m" / "1")
    (tmp_path / "m" / "config.pbtxt").write_text(f"max_batch_size: 2 sequence_batching {{ {text} }}")
    with pytest.raises(LoadError, match="sequence_batching does not match the file") as caught:
        Server([tmp_path])
    assert words in str(caught.value.where)


def test_a_state_is_not_reshaped(build: Any, tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    ends = ({name: (TensorProto.FLOAT, ["n", 4])} for name in "xy")
    build("model", [("Identity", ["x"], ["y"], {})], *ends, folder=tmp_path / "m" / "1")
    (tmp_path / "m" / "config.pbtxt").write_text(
        """max_batch_size: 2 output { name: "y" dims: [2, 2] reshape { shape: [4] } }
        sequence_batching { state { input_name: "x" output_name: "y" } }"""
    )
    with pytest.raises(LoadError, match="a state cannot be reshaped"):
        Server([tmp_path])
