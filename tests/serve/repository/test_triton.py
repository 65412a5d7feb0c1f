"""What a configuration in Triton's form changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.errors import LoadError
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.model_config import ModelConfig
from ox.serve.repository.layout import ModelFiles
from ox.serve.repository.pbtxt import from_json, from_text
from ox.serve.repository.policy import Policy
from ox.serve.repository.setup import Running, Setup, TensorConfig
from ox.serve.repository.setups import Setups
from ox.serve.repository.triton import merged

BASE = Setup(Running(ModelConfig(deadline_ms=1000)))


def read(folder: Path, text: str) -> Setup:
    path = folder / "config.pbtxt"
    path.write_text(text)
    config, unknown = from_text(path)
    return merged(BASE, config, "m", str(path), unknown)


def test_nothing_said(tmp_path: Path) -> None:
    assert read(tmp_path, "") == read(tmp_path, "name: 'm' platform: 'onnxruntime_onnx'") == BASE
    assert read(tmp_path, "backend: 'onnxruntime'") == BASE


def test_everything_that_is_followed(tmp_path: Path) -> None:
    setup = read(
        tmp_path,
        """
        name: "m"
        max_batch_size: 16
        default_model_filename: "net.onnx"
        input [ { name: "x" data_type: TYPE_FP32 dims: [ 4, -1 ] } ]
        output [ { name: "y" data_type: TYPE_STRING dims: [ 10 ] label_filename: "labels.txt" } ]
        instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_CPU } ]
        dynamic_batching {
          preferred_batch_size: [ 4, 8 ]
          max_queue_delay_microseconds: 1500
          priority_levels: 3
          default_priority_level: 2
          default_queue_policy {
            default_timeout_microseconds: 2000000 max_queue_size: 9 allow_timeout_override: true
          }
        }
        version_policy { specific { versions: [ 1, 3 ] } }
        parameters { key: "intra_op_thread_count" value { string_value: "2" } }
        model_warmup [ { name: "w" } ]
        """,
    )
    options = ModelConfig(
        device="cpu", max_rows=8, max_wait_ms=1.5, deadline_ms=2000.0, instances=3, threads=2, max_queue=9,
        priority_levels=3, default_priority=2,
    )  # fmt: skip
    inputs, outputs = (TensorConfig("x", "FP32", (-1, 4, -1)),), (TensorConfig("y", "BYTES", (-1, 10), "labels.txt"),)
    assert setup == Setup(
        Running(options, "net.onnx", None, inputs, outputs, max_rows_source="preferred_batch_size is 8 (config.pbtxt)"),
        Policy(None, frozenset({1, 3})),
        unmapped=(),
    )


def test_small_differences(tmp_path: Path) -> None:
    assert read(tmp_path, "max_batch_size: 16").running.options.max_rows == 16
    assert read(tmp_path, "max_batch_size: 0").running.options.max_rows == 0
    preferred = "max_batch_size: 0 dynamic_batching { preferred_batch_size: [4] }"
    assert read(tmp_path, preferred).running.options.max_rows == 0
    assert read(tmp_path, "dynamic_batching {}").running.options.max_rows is None
    assert read(tmp_path, "input { name: 'x' dims: [2] }").running.inputs == (TensorConfig("x", None, (2,)),)
    assert read(tmp_path, "input { name: 'x' }").running.inputs[0].dims is None
    assert read(tmp_path, "instance_group { kind: KIND_GPU }").running.options.device == "cuda"
    assert read(tmp_path, "instance_group { kind: KIND_AUTO }").running.options.device == "cpu"
    mixed = read(tmp_path, "instance_group [ { kind: KIND_GPU }, { kind: KIND_CPU } ]").running.options
    assert mixed.device == "auto" and mixed.instances == 2
    assert read(tmp_path, "version_policy { all {} }").policy == Policy(None)
    assert read(tmp_path, "version_policy { latest {} }").policy == Policy(1)
    assert read(tmp_path, "version_policy { latest { num_versions: 3 } }").policy == Policy(3)
    assert read(tmp_path, "dynamic_batching { priority_levels: 4 }").running.options.default_priority == 1
    zero = "parameters { key: 'intra_op_thread_count' value { string_value: '0' } }"
    assert read(tmp_path, zero) == BASE


@pytest.mark.parametrize(
    ("groups", "device", "instances"),
    [
        ("{ kind: KIND_GPU gpus: [0, 1] }", "cuda:0,cuda:1", 2),
        ("{ count: 2 kind: KIND_GPU gpus: [0, 1] }", "cuda:0,cuda:1", 4),
        ("{ kind: KIND_GPU gpus: 3 }", "cuda:3", 1),
        ("{ count: 2 kind: KIND_GPU gpus: [0] }, { kind: KIND_GPU gpus: [1] }", "cuda:0,cuda:0,cuda:1", 3),
        ("{ kind: KIND_GPU gpus: [1] }, { kind: KIND_CPU }", "auto:1", 2),
    ],
)
def test_groups_on_gpus(tmp_path: Path, groups: str, device: str, instances: int) -> None:
    setup = read(tmp_path, f"instance_group [ {groups} ]")
    assert (setup.running.options.device, setup.running.options.instances) == (device, instances)
    assert not setup.unmapped


def test_gpus_of_a_group_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text("instance_group { gpus: [0, 1] }" + GPU_PARAMETERS % 1)
    config, unknown = from_text(path)
    for device, chosen in (("auto", "auto:0,auto:1"), ("cuda", "cuda:0,cuda:1"), ("cuda:2", "cuda:0,cuda:1")):
        setup = merged(Setup(Running(ModelConfig(device))), config, "m", str(path), unknown)
        assert setup.running.options.device == chosen and "instance_group.gpus" not in setup.unmapped
        assert bool(setup.running.options.cuda) is (device != "auto")


GPU_PARAMETERS = """
    parameters { key: 'gpu_mem_limit' value { string_value: '4294967296' } }
    parameters { key: 'arena_extend_strategy' value { string_value: '1' } }
    parameters { key: 'cudnn_conv_algo_search' value { string_value: '%s' } }
"""


def test_parameters_of_a_gpu(tmp_path: Path) -> None:
    setup = read(tmp_path, "instance_group { kind: KIND_GPU }" + GPU_PARAMETERS % 1)
    expected = CudaOptions(4 << 30, "kSameAsRequested", "HEURISTIC")
    assert CudaOptions.from_table(setup.running.options.cuda) == expected and not setup.unmapped
    elsewhere = read(tmp_path, GPU_PARAMETERS % 1)  # the same file on a machine without a GPU
    assert not elsewhere.running.options.cuda and "parameters.gpu_mem_limit" in elsewhere.unmapped
    with pytest.raises(LoadError, match="cudnn_conv_algo_search of cuda is wrong"):
        read(tmp_path, "instance_group { kind: KIND_GPU }" + GPU_PARAMETERS % 3)


ACCELERATED = """
    optimization { execution_accelerators { gpu_execution_accelerator : [ {
        name: "%s"
        parameters { key: "cudnn_conv_use_max_workspace" value: "0" }
        parameters { key: "use_ep_level_unified_stream" value: "1" }
    } ] } }
"""
ACCELERATOR = "optimization.execution_accelerators.gpu_execution_accelerator"


def test_accelerators_of_a_gpu(tmp_path: Path) -> None:
    setup = read(tmp_path, "instance_group { kind: KIND_GPU }" + GPU_PARAMETERS % 1 + ACCELERATED % "cuda")
    expected = CudaOptions(4 << 30, "kSameAsRequested", "HEURISTIC", cudnn_conv_use_max_workspace=False)
    assert CudaOptions.from_table(setup.running.options.cuda) == expected
    assert setup.unmapped == (f"{ACCELERATOR}.cuda.use_ep_level_unified_stream",)
    assert read(tmp_path, ACCELERATED % "cuda").unmapped == (f"{ACCELERATOR}.cuda",)  # on a CPU
    other = read(tmp_path, "instance_group { kind: KIND_GPU }" + ACCELERATED % "other")
    assert other.unmapped == (f"{ACCELERATOR}.other",) and not other.running.options.cuda


def test_tensorrt(tmp_path: Path) -> None:
    own = 'parameters { key: "precision_mode" value: "FP16" }'
    second = '{ name: "cuda" parameters { key: "sdpa_kernel" value: "1" } }'
    both = f'{{ name: "tensorrt" {own} }}, {second}'
    both = f"optimization {{ execution_accelerators {{ gpu_execution_accelerator : [ {both} ] }} }}"
    setup = read(tmp_path, "instance_group { kind: KIND_GPU gpus: [1] }" + both)
    assert setup.running.options.device == "tensorrt:1"
    assert CudaOptions.from_table(setup.running.options.cuda).sdpa_kernel == 1
    assert setup.unmapped == (f"{ACCELERATOR}.tensorrt.precision_mode",)
    elsewhere = read(tmp_path, ACCELERATED % "tensorrt")
    assert elsewhere.running.options.device == "cpu" and elsewhere.unmapped == (f"{ACCELERATOR}.tensorrt",)


@rows(
    ("text", "name"),
    [
        ("new_field: 3", "new_field"),
        ("response_cache { enable: true }", "response_cache"),
        ("optimization { graph { level: 1 } }", "optimization.graph"),
        ("sequence_batching { oldest { preserve_ordering: true } }", "sequence_batching.oldest.preserve_ordering"),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy"),
        ("input [ { name: 'x' optional: true }, { name: 'y' optional: true } ]", "input.optional"),
        ("instance_group { gpus: [0, 1] }", "instance_group.gpus"),
        ("dynamic_batching { preserve_ordering: true }", "dynamic_batching.preserve_ordering"),
        (
            "dynamic_batching { default_queue_policy { timeout_action: DELAY } }",
            "dynamic_batching.default_queue_policy.timeout_action",
        ),
        ("parameters { key: 'execution_mode' value { string_value: '1' } }", "parameters.execution_mode"),
        ("parameters { key: 'intra_op_thread_count' value { string_value: 'x' } }", "parameters.intra_op_thread_count"),
    ],
)
def test_the_rest_is_named(tmp_path: Path, text: str, name: str) -> None:
    assert read(tmp_path, text).unmapped == (name,)


@rows(
    ("text", "words"),
    [
        ("name: 'other'", "another model"),
        ("platform: 'tensorflow_savedmodel'", "only ONNX files"),
        ("backend: 'python'", "only ONNX files"),
        ("ensemble_scheduling { step [] }", "ensembles"),
        ("max_batch_size: -1", "max_batch_size is out of range"),
        ("max_batch_size: 2000000000", "max_rows is out of range"),
        ("instance_group { count: -1 }", "instances is out of range"),
        ("instance_group { kind: KIND_GPU gpus: [0] count: -1 }", "instances is out of range"),
        ("instance_group { kind: KIND_GPU gpus: [0, 1] count: 2000000000 }", "instances is out of range"),
        ("instance_group { kind: KIND_GPU gpus: [-1] }", "unknown device"),
        ("instance_group { kind: KIND_CPU gpus: [0] }", "a group of instances on the CPU has gpus"),
        ("default_model_filename: '../x.onnx'", "contains folders"),
        ("default_model_filename: '/x.onnx'", "contains folders"),
        ("default_model_filename: '..'", "contains folders"),
        ("output { name: 'y' label_filename: '../../secret' }", "contains folders"),
        ("dynamic_batching { priority_levels: 2 default_priority_level: 3 }", "default_priority is out of range"),
        ("dynamic_batching { max_queue_delay_microseconds: 5000000 }", "max_wait_ms must be shorter"),
    ],
)
def test_what_cannot_be(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        read(tmp_path, text)
    assert words in caught.value.what and caught.value.what.startswith("m: ")
    assert "config.pbtxt" in str(caught.value.where)


def test_through_a_server(
    make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another file's name, class names, one warning, and what is asked of inputs is held against the file."""
    make(tmp_path / "m" / "1" / "net.onnx", 1)
    (tmp_path / "m" / "labels.txt").write_text("a\nb\nc\nd\n")
    path = tmp_path / "m" / "config.pbtxt"
    path.write_text(
        """
        default_model_filename: "net.onnx"
        max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: [4] }
        output { name: "y" dims: [-1] label_filename: "labels.txt" }
        response_cache { enable: true }
        one: 1 two: 2
        """
    )
    with serve(tmp_path) as server:
        client = caller(server)
        assert client.infer("m") == (200, (1, 1.0))
        (tmp_path / "ox.toml").write_text("[models.m]\nlabels = {prod = 1}")
        eventually(lambda: client.infer("m/versions/prod")[0] == 200)
        warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert warnings == ["m: this server does not follow one, two, response_cache"]
        entry = client.ask("/v2/models/m")[1]["outputs"][0]
        assert entry["parameters"]["labels"] == ["a", "b", "c", "d"]
        assert server.service.model_config("m")["max_batch_size"] == 4


@rows(
    "declared",
    ["input { name: 'x' data_type: TYPE_FP64 dims: [-1, 4] }", "input { name: 'x' dims: [4] }", "input { name: 'w' }",
     "input { name: 'x' dims: [-1, 5] }", "output { name: 'y' dims: [-1, 4, 1] }",
     "max_batch_size: 4 input { name: 'x' dims: [5] }"],
)  # fmt: skip
def test_what_contradicts_the_file(make: Any, serve: Any, tmp_path: Path, declared: str) -> None:
    make(tmp_path / "m" / "1" / "model.onnx", 1)
    (tmp_path / "m" / "config.pbtxt").write_text(declared)
    with pytest.raises(LoadError, match="the configuration does not match the file") as caught:
        serve(tmp_path)
    assert "put '" in str(caught.value.where)


def test_class_names_stay_inside(make: Any, serve: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    make(tmp_path / "all" / "m" / "1" / "model.onnx", 1)
    (tmp_path / "all" / "m" / "config.pbtxt").write_text("output { name: 'y' label_filename: 'labels.txt' }")
    with pytest.raises(LoadError, match="cannot be read"):
        serve(tmp_path / "all")
    (tmp_path / "all" / "m" / "labels.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(LoadError, match="leads out of its folder"):
        serve(tmp_path / "all")


def test_a_configuration_that_changes(make: Any, serve: Any, caller: Any, eventually: Any, tmp_path: Path) -> None:
    make(tmp_path / "m" / "1" / "model.onnx", 1)
    make(tmp_path / "m" / "2" / "model.onnx", 2)
    path = tmp_path / "m" / "config.pbtxt"
    with serve(tmp_path) as server:
        client = caller(server)
        model = server.models[0]
        path.write_text("version_policy { all {} }")
        eventually(lambda: client.infer("m/versions/1") == (200, (1, 1.0)))
        assert server.models[0] is model  # how it runs has not changed
        path.write_text("version_policy { all {")
        eventually(lambda: "line 1" in client.index("m")["1"][1])
        path.write_text("max_batch_size: 2")
        eventually(lambda: server.service.model_config("m")["max_batch_size"] == 2)
        assert server.models[0] is not model and client.infer("m") == (200, (2, 2.0))
        path.write_text("version_policy { specific { versions: 9 } }")
        eventually(lambda: "chooses none" in client.index("m")["2"][1])
        assert client.infer("m") == (200, (2, 2.0))
        path.unlink()
        eventually(lambda: client.index("m")["2"] == ("READY", ""))


@pytest.mark.parametrize(("said", "rows"), [('{"max_batch_size": 0}', 0), ('{"max_batch_size": 4}', 8), ("{}", 8)])
def test_no_setting_batches_what_the_configuration_does_not(tmp_path: Path, said: str, rows: int) -> None:
    settings = tmp_path / "ox.toml"
    settings.write_text("[models.m]\nmax_rows = 8\n")
    setups = Setups(ModelConfig())
    setups.read({settings: ()})
    assert setups.of(ModelFiles("m", tmp_path), from_json(said)).running.options.max_rows == rows
