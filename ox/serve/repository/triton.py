"""What a configuration in Triton's form means here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from ox.errors import ArgumentError, LoadError
from ox.serve.config.cuda_options import READERS
from ox.serve.config.model_config import COUNTS
from ox.serve.config.placement import Placement
from ox.serve.repository.policy import Policy
from ox.serve.repository.sequence_batching import from_message
from ox.serve.repository.setup import Running, Setup, TensorConfig
from ox.serve.repository.tensor_config import format_of, reshape_of

# What is followed; of the rest, what differs from its default is named. Every size is warmed anyhow.
SUPPORTED = {
    "ModelConfig": "name platform backend version_policy max_batch_size input output instance_group dynamic_batching "
    "sequence_batching default_model_filename parameters model_warmup optimization",
    "ModelOptimizationPolicy": "execution_accelerators",
    "ExecutionAccelerators": "gpu_execution_accelerator",
    "ModelInput": "name data_type dims reshape format",
    "ModelOutput": "name data_type dims reshape label_filename",
    "ModelInstanceGroup": "name count kind gpus",
    "ModelDynamicBatching": "preferred_batch_size max_queue_delay_microseconds priority_levels default_priority_level "
    "default_queue_policy",
    "ModelSequenceBatching": "max_sequence_idle_microseconds control_input direct oldest state iterative_sequence",
    "ControlInput": "name control",
    "Control": "kind int32_false_true fp32_false_true data_type bool_false_true",
    # The last two save copies where states live on a device of Triton's.
    "State": "input_name output_name data_type dims initial_state use_same_buffer_for_input_output use_growable_memory",
    "InitialState": "data_type dims zero_data data_file name",
    "StrategyDirect": "max_queue_delay_microseconds minimum_slot_utilization",
    "StrategyOldest": "max_candidate_sequences preferred_batch_size max_queue_delay_microseconds",
    "ModelQueuePolicy": "default_timeout_microseconds allow_timeout_override max_queue_size",
}
DEVICES = {0: "auto", 1: "cuda", 2: "cpu", 3: "auto"}  # of ModelInstanceGroup.Kind
CUDA_PARAMETERS = ("gpu_mem_limit", "arena_extend_strategy", "cudnn_conv_algo_search")  # others of Triton's are texts
ACCELERATOR = "optimization.execution_accelerators.gpu_execution_accelerator"
PLATFORMS = ("", "onnxruntime_onnx")
BACKENDS = ("", "onnxruntime")


def merged(setup: Setup, config: Any, name: str, where: str, unknown: list[str]) -> Setup:
    """`setup` with the settings of a ModelConfig.

    Args:
        name: the model's folder.
        where: for errors: the file, or the call.
        unknown: fields that the message does not have.

    Raises:
        LoadError: the configuration is for something else, or out of range.
    """

    def wrong(what: str, expected: str, got: str) -> LoadError:
        return LoadError(f"{name}: {what}", where=where, expected=expected, got=got)

    if config.name not in ("", name):
        raise wrong("the configuration is for another model", f"name: '{name}'", f"'{config.name}'")
    if config.platform not in PLATFORMS or config.backend not in BACKENDS:
        raise wrong("only ONNX files can be served", "backend: 'onnxruntime'", config.backend or config.platform)
    choice = config.WhichOneof("scheduling_choice")
    if choice == "ensemble_scheduling":
        raise wrong("ensembles are not supported", "a configuration of one model", choice)
    if config.max_batch_size < 0:
        raise wrong("max_batch_size is out of range", "0 or more", str(config.max_batch_size))
    file = config.default_model_filename or setup.running.file
    # Hugging Face's repositories keep their variants of one model in a folder "onnx".
    for entry in (file.removeprefix("onnx/"), *(output.label_filename for output in config.output)):
        if "/" in entry or "\0" in entry or entry in (".", ".."):
            raise wrong("a file name contains folders", "a name without folders", repr(entry))
    changes, sequence = _options(config), setup.running.sequence
    for group in config.instance_group:
        if group.gpus and DEVICES[group.kind] == "cpu":
            raise wrong("a group of instances on the CPU has gpus", "KIND_GPU, or no gpus", str(list(group.gpus)))
    if choice == "sequence_batching":
        sequence, more = from_message(config.sequence_batching, config.max_batch_size, name, where)
        changes |= more
    unmapped = [*unknown, *_unsupported_fields(config)]
    device = changes.get("device", setup.running.options.device)
    if any(group.gpus for group in config.instance_group):
        if device == "cpu":
            unmapped.append("instance_group.gpus")
        else:
            changes |= _on_gpus(config.instance_group, Placement.parse(device).kind)
    on_gpu = Placement.parse(device).kind in ("cuda", "tensorrt")
    for key, parameter in sorted(config.parameters.items()):
        value = parameter.string_value
        if key == "intra_op_thread_count" and value.isascii() and value.isdigit():
            if int(value):  # 0 is the runtime's own choice
                changes["threads"] = int(value)
        elif key in CUDA_PARAMETERS and on_gpu:
            changes["cuda"] = {**changes.get("cuda", setup.running.options.cuda), key: value}
        else:
            unmapped.append(f"parameters.{key}")
    for accelerator in config.optimization.execution_accelerators.gpu_execution_accelerator:
        if accelerator.name not in ("cuda", "tensorrt") or not on_gpu:
            unmapped.append(f"{ACCELERATOR}.{accelerator.name}")
            continue
        table: dict[str, str] = {}
        if accelerator.name == "tensorrt":
            changes["device"] = changes.get("device", device).replace("cuda", "tensorrt")
        else:
            table = {key: value for key, value in accelerator.parameters.items() if key in READERS}
            changes["cuda"] = {**changes.get("cuda", setup.running.options.cuda), **table}
        others = sorted(set(accelerator.parameters) - set(table))
        unmapped += [f"{ACCELERATOR}.{accelerator.name}.{key}" for key in others]
    try:
        options = setup.running.options.updated(changes, where)
    except ArgumentError as error:
        raise LoadError(f"{name}: {error.what}", where=where, expected=error.expected, got=error.got) from None
    batched = config.max_batch_size > 0
    source = setup.running.max_rows_source
    if "max_rows" in changes:
        setting = "max_batch_size" if changes["max_rows"] == config.max_batch_size else "preferred_batch_size"
        source = f"{setting} is {changes['max_rows']} ({where.rsplit('/', 1)[-1]})"
    running = Running(
        options,
        file,
        setup.running.memory_mib,
        tuple(_input(entry, batched, name, where) for entry in config.input),
        tuple(_output(entry, batched, name, where) for entry in config.output),
        sequence,
        own=tuple(changes),
        max_rows_source=source,
    )
    return replace(setup, running=running, policy=_policy(config, setup.policy), unmapped=tuple(unmapped))


def _options(config: Any) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    batching, queue = config.dynamic_batching, config.dynamic_batching.default_queue_policy
    if config.HasField("max_batch_size"):  # an explicit 0 differs from an absent field
        changes["max_rows"] = config.max_batch_size
    if batching.preferred_batch_size and changes.get("max_rows") != 0:
        changes["max_rows"] = max(batching.preferred_batch_size)
    if batching.max_queue_delay_microseconds:
        changes["max_wait_ms"] = batching.max_queue_delay_microseconds / 1000
    if batching.priority_levels:
        # Without a default, Triton takes the highest level of those that there are.
        changes["priority_levels"] = batching.priority_levels
        changes["default_priority"] = batching.default_priority_level or 1
    if queue.default_timeout_microseconds:
        changes["deadline_ms"] = queue.default_timeout_microseconds / 1000
    if queue.max_queue_size:
        changes["max_queue"] = queue.max_queue_size
    if config.instance_group:
        # Triton adds them up, with 1 as the default.
        changes["instances"] = sum(group.count or 1 for group in config.instance_group)
        kinds = {DEVICES[group.kind] for group in config.instance_group} - {"auto"}
        if kinds:
            changes["device"] = kinds.pop() if len(kinds) == 1 else "auto"
    return changes


def _on_gpus(groups: Any, kind: str) -> dict[str, Any]:
    """The instances of groups of which some name GPUs: Triton has `count` of them on each."""
    counts = Counter[int]()
    for group in groups:
        counts.update(dict.fromkeys(group.gpus, group.count or 1))
    instances = sum((group.count or 1) * max(1, len(group.gpus)) for group in groups)
    if min(counts.values()) < 1 or instances > COUNTS["instances"]:
        return {"instances": instances}  # which is refused
    return {"instances": instances, "device": str(Placement.of_counts(kind, counts))}


def _policy(config: Any, default: Policy) -> Policy:
    match config.version_policy.WhichOneof("policy_choice"):
        case "latest":
            return Policy(max(1, config.version_policy.latest.num_versions))
        case "all":
            return Policy(None)
        case "specific":
            return Policy(None, frozenset(config.version_policy.specific.versions))
    return default


def _input(entry: Any, batched: bool, model: str, where: str) -> TensorConfig:
    who = f"{model}: input '{entry.name}'"
    return replace(_declared(entry, batched, who, where), format=format_of(entry, who, where))


def _output(entry: Any, batched: bool, model: str, where: str) -> TensorConfig:
    who = f"{model}: output '{entry.name}'"
    return replace(_declared(entry, batched, who, where), labels=entry.label_filename or None)


def _declared(entry: Any, batched: bool, who: str, where: str) -> TensorConfig:
    dims, reshape = tuple(entry.dims), reshape_of(entry, who, where)
    if batched:  # the batch goes without saying
        dims, reshape = (-1, *dims), None if reshape is None else (-1, *reshape)
    dtype = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[entry.data_type].name
    names = {"TYPE_INVALID": None, "TYPE_STRING": "BYTES"}
    dtype = names.get(dtype, dtype.removeprefix("TYPE_"))
    return TensorConfig(entry.name, dtype, dims if entry.dims else None, reshape=reshape)


def _unsupported_fields(message: Any, path: str = "") -> list[str]:
    """The names of the fields that are set and not followed."""
    followed = SUPPORTED[message.DESCRIPTOR.name].split()
    names: list[str] = []
    for field, value in message.ListFields():
        name = f"{path}{field.name}"
        inner = field.message_type
        if field.name not in followed:
            names.append(name)
        elif inner is not None and inner.name in SUPPORTED:
            for item in [value] if hasattr(value, "ListFields") else value:
                names += [one for one in _unsupported_fields(item, f"{name}.") if one not in names]
    return names
