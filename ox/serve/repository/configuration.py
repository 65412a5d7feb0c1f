"""A model's configuration in the protocol's form: the effective settings."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ox.graph.contract import TensorInfo
from ox.serve.repository.model import Model
from ox.serve.repository.setup import Setup, TensorConfig
from ox.serve.repository.tensor_config import NO_FORMAT
from ox.serve.runtime.proof import buckets


def configuration(model: Model, setup: Setup | None) -> dict[str, Any]:
    """The fields of a ModelConfig by name."""
    if model.generation is not None:
        return _of_texts(model, setup)
    # With a batch of 1 there is none: then the first dimension is the model's own, and `dims` holds it.
    most = model.proof.max_rows if model.proof.why is None else 0
    inputs = {} if setup is None else {entry.name: entry for entry in setup.running.inputs}
    outputs = {} if setup is None else {entry.name: entry for entry in setup.running.outputs}
    answer: dict[str, Any] = {
        "name": model.name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": most,
        "input": [
            *(_tensor(info, most > 0, inputs.get(info.name)) for info in model.inputs),
            *(_tensor(each.info, False, None) | {"optional": True} for each in model.signature.defaulted.values()),
        ],
        "output": [_tensor(info, most > 0, outputs.get(info.name)) for info in model.outputs],
        "instance_group": _instance_groups(model),
        "default_model_filename": "model.onnx" if setup is None else setup.running.file,
        "parameters": {"intra_op_thread_count": {"string_value": str(model.threads)}},
    }
    for name, value in model.options.cuda.items():
        answer["parameters"][name] = {"string_value": str(value)}
    if model.proof.why is not None:
        answer["parameters"]["ox_batching_off"] = {"string_value": model.proof.why}
    if (padding := _padding(model)) is not None:
        answer["parameters"]["ox_padding"] = {"string_value": padding}
    if setup is not None:
        answer["version_policy"] = setup.policy.to_json()
    if setup is not None and setup.running.sequence is not None:
        answer["sequence_batching"] = setup.running.sequence.to_json()
    elif most:
        options = model.options
        answer["dynamic_batching"] = {
            "preferred_batch_size": buckets(most),
            "max_queue_delay_microseconds": round(1000 * options.max_wait_ms),
            "priority_levels": options.priority_levels,
            "default_priority_level": options.default_priority,
            "default_queue_policy": {
                "default_timeout_microseconds": round(1000 * options.deadline_ms),
                "allow_timeout_override": True,
                "max_queue_size": options.max_queue,
            },
        }
    return answer


def _instance_groups(model: Model) -> list[dict[str, Any]]:
    """A group for the CPU, or for each GPU."""
    if model.engine.device == "cpu":
        return [{"name": f"{model.name}_0", "kind": "KIND_CPU", "count": model.instances}]
    counts = Counter(model.engine.placement.number(index) for index in range(model.instances))
    return [
        {"name": f"{model.name}_{index}", "kind": "KIND_GPU", "count": count, "gpus": [number]}
        for index, (number, count) in enumerate(counts.items())
    ]


def _of_texts(model: Model, setup: Setup | None) -> dict[str, Any]:
    """Of a model that generates texts: an answer for each token, and no batches of rows."""
    answer: dict[str, Any] = {
        "name": model.name,
        "platform": "ox_generation",
        "backend": "onnxruntime",
        "max_batch_size": 0,
        "input": [_tensor(info, False, None) for info in model.inputs],
        "output": [_tensor(info, False, None) for info in model.outputs],
        "instance_group": [{"name": f"{model.name}_0", "kind": "KIND_CPU", "count": 1}],
        "default_model_filename": "model.onnx" if setup is None else setup.running.file,
        "model_transaction_policy": {"decoupled": True},
        "parameters": {"intra_op_thread_count": {"string_value": str(model.threads)}},
    }
    if setup is not None:
        answer["version_policy"] = setup.policy.to_json()
    return answer


def _padding(model: Model) -> str | None:
    """Whether requests are padded, and the proof; None without padding."""
    if model.padding is None:
        return None if model.padded.refusal is None else f"off: {model.padded.refusal}"
    return "proven" if model.padded.unproven is None else f"tried, not proven: {model.padded.unproven}"


def _tensor(info: TensorInfo, batched: bool, declared: TensorConfig | None) -> dict[str, Any]:
    dtype = "TYPE_STRING" if info.dtype == "BYTES" else f"TYPE_{info.dtype}"
    dims = [size if isinstance(size, int) else -1 for size in info.dims]
    entry: dict[str, Any] = {"name": info.name, "data_type": dtype, "dims": dims[1:] if batched else dims}
    if declared is not None and declared.format != NO_FORMAT:
        entry["format"] = declared.format
    if declared is not None and declared.reshape is not None:
        entry["reshape"] = {"shape": list(declared.reshape[1:] if batched else declared.reshape)}
    if declared is not None and declared.labels is not None:
        entry["label_filename"] = declared.labels
    return entry
