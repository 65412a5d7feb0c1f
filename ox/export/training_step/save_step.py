"""`ox.export.save_step`: record a training step, write it and its initial state, and prove it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ox import random
from ox.core import heap
from ox.core.mode import MODE
from ox.errors import ArgumentError, ExportError, RecordError
from ox.export.example_inputs import Dims, Example, read
from ox.export.save_model import note_failure
from ox.export.training_step.evaluation import record_evaluation
from ox.export.training_step.layout import KEY, LOSS, Layout, following
from ox.export.training_step.proof import run_chains
from ox.export.training_step.recording import record_step
from ox.export.training_step.report import StepReport
from ox.export.training_step.state import check_recordable, put_back, state_of
from ox.export.training_step.state import freeze as freeze_parameters
from ox.export.training_step.step import Forward, Metrics, Step
from ox.export.training_step.step_files import Places, StepFiles
from ox.export.two_sizes import as_export_error
from ox.graph.ir import Array, Graph
from ox.graph.writer import opset as opsets
from ox.nn.base.module import Module
from ox.onnx_module.loaded import Loaded
from ox.optim.optimizer import Optimizer

TARGET = "target"


def save_step(
    model: Module,
    loss: Callable[[Any, Any], Any],
    optimizer: Optimizer,
    path: str | os.PathLike[str],
    inputs: Any,
    target: Any,
    *,
    clip: float | None = None,
    freeze: str | Sequence[str] = (),
    metrics: Metrics | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dims: Dims | None = None,
    opset: int | None = None,
    seed: int = 0,
    metadata: Mapping[str, str] | None = None,
) -> StepReport:
    """Write a training step as an ONNX file that trains without ox: forward, loss, backward, clipping, update.

    The file is one graph of `ai.onnx` operators. It takes a batch, learning rates and the state (parameters, running
    statistics, the optimizer's state, the random state), and gives the loss, metrics and the next state: the output
    ``X.next`` for the input ``X``. Two files are written beside it. ``<name>.safetensors`` has the initial state.
    ``<name>.eval.onnx`` gives loss, metrics and the model's outputs in eval mode, from a batch, parameters and running
    statistics. All three have the names as JSON in their metadata; docs/training-step.md describes it.

    The step is recorded in train mode at two batch sizes, and both recordings must be one graph. ONNX Runtime then
    takes four steps at two further batch sizes; loss, metrics and all state must agree with the eager steps within
    `ox.tolerance`. Only then the files appear. Model, optimizer, modes and random state are afterwards what they were.

    Args:
        loss: called as loss(outputs, target), gives a tensor of one element.
        optimizer: of ox.optim, with its state and settings so far. The learning rate is an input, other settings are
            constants.
        inputs: a tensor or array, a tuple of them in the order of the arguments, or a dict by argument name.
        target: a tensor or array with as many rows; the input ``target``.
        clip: the largest norm of all gradients together, as in `clip_grad_norm_`.
        freeze: names of parameters or modules, in which ``*`` stands for any characters, that are not trained. They are
            initializers. A module of which no parameter is trained runs in eval mode.
        metrics: further outputs by name, each a function of outputs and target. Default: ``accuracy``, if outputs are
            [batch, classes] and targets [batch] integers.
        input_names: default: the argument names of `forward`.
        output_names: of the model's outputs in the evaluation; default: ``output``, ``output_0``, ..., or the keys of
            the dict that it returns.
        dims: as in `ox.export.save`, also for ``target``.
        opset: the `ai.onnx` opset; default: the lowest from 21 on that can express the step.
        seed: the key of random numbers, of dropout for example.
        metadata: further `metadata_props`.

    Raises:
        ExportError: what cannot be recorded, written or proven.
        ArgumentError: arguments that do not fit together.
    """
    if not isinstance(model, Module):
        raise ArgumentError("the model is no module", got=type(model).__name__)
    if not callable(loss):
        raise ArgumentError("the loss is no function", expected="loss(outputs, target)", got=type(loss).__name__)
    named = dict(dims or {})
    own = {TARGET: named.pop(TARGET)} if TARGET in named else None
    known = model.contract if isinstance(model, Loaded) else None  # a loaded file keeps its names
    given = read(model, inputs, input_names, named or None, known)
    if output_names is None and known is not None:
        output_names = [info.name for info in known.outputs]
    answers = read(lambda target: target, (target,), [TARGET], own)
    if TARGET in given.arrays:
        raise ArgumentError(f"an input is called '{TARGET}'", hint="input_names=[...]")
    both = Example({**given.arrays, **answers.arrays}, {**given.dims, **answers.dims}, None)
    check_sizes(both)

    def forward(*batch: Any) -> tuple[Any, Any]:
        outputs = given.call(model, batch[:-1])
        return loss(outputs, batch[-1]), outputs

    modules = {"": model, **({"loss.": loss} if isinstance(loss, Module) and any(loss.parameters()) else {})}
    return write_step(
        modules, forward, optimizer, path, both, target=len(both.arrays) - 1, clip=clip,
        freeze=(freeze,) if isinstance(freeze, str) else tuple(freeze), metrics=metrics, output_names=output_names,
        opset=opset, seed=seed, metadata=metadata,
    )  # fmt: skip


def write_step(
    modules: Mapping[str, Module],
    forward: Forward,
    optimizer: Optimizer,
    path: str | os.PathLike[str],
    example: Example,
    *,
    target: int,
    clip: float | None = None,
    freeze: tuple[str, ...] = (),
    metrics: Metrics | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    seed: int = 0,
    metadata: Mapping[str, str] | None = None,
) -> StepReport:
    """`save_step` with a function from the tensors of a batch to (loss, outputs) in place of model and loss.

    Args:
        modules: what has the parameters, by the prefix of their names.
        target: which of the tensors is the target.
    """
    if MODE.get().recording is not None:
        raise ExportError("save_step was called inside a recording", hint="outside of compiled or recorded code")
    check_recordable(optimizer)
    if clip is not None and not clip > 0:
        raise ArgumentError("clip must be a number above 0", got=repr(clip))
    places = Places.beside(Path(path))
    gc.collect()  # a recorded write is one of all views: those of earlier steps must be gone
    with note_failure(places.step), _record_errors(), heap.put_aside():
        opsets.check_range(opset)
        root = modules[""]
        with put_back(modules, optimizer):
            if not root.training:
                root.train()
            freeze_parameters(modules, freeze)
            step = Step(forward, state_of(modules, optimizer), tuple(example.arrays), target, metrics, clip)
            _check_names(step)
            random.manual_seed(seed)
            rates = {name: np.asarray(rate, np.float32) for name, rate in step.state.rates.items()}
            before = {**rates, **step.state.arrays()}
            chains = run_chains(step, example, before)
            if not np.isfinite(chains[0].results[0][LOSS]):
                raise ExportError("the loss of the example is not finite", got=str(chains[0].results[0][LOSS]))
            graph = record_step(step, example, before, opset)
            step.state.load(before)
            changed = {v.name for v in graph.inputs}
            evaluated, cases = record_evaluation(step, changed, output_names, example, before, opset)
        layout = _layout(step, graph, evaluated, places, rates)
        entries = {KEY: layout.to_json(), **dict(metadata or {})}
        made = StepFiles(places, entries, opset)
        return made.write((graph, chains), (evaluated, cases), before, layout, type(root).__name__)


def _layout(step: Step, graph: Graph, evaluated: Graph, places: Places, rates: Mapping[str, Array]) -> Layout:
    inputs, outputs = [v.name for v in graph.inputs], [v.name for v in graph.outputs]
    kinds = step.state.kinds
    state = {name: following(name) for name in inputs if following(name) in outputs}
    results = [name for name in outputs if name not in state.values()]
    return Layout(
        tuple(name for name in inputs if name in step.batch),
        {name: float(str(rate)) for name, rate in rates.items() if name in inputs},
        state,
        {name: kinds[name] for name in state},
        LOSS,
        tuple(name for name in results if name != LOSS),
        tuple(v.name for v in evaluated.outputs if v.name not in results),
        places.initial.name,
        places.evaluation.name,
        type(step.state.optimizer).__name__,
        tuple(name for name in [*step.state.fixed, *step.state.parameters] if name not in state),
    )


def _check_names(step: Step) -> None:
    seen: set[str] = set()
    for name in (*step.inputs, LOSS, *(step.metrics or ())):
        if name in seen:
            raise ArgumentError(
                f"two inputs, outputs or parameters would be called '{name}'",
                hint="other input_names, other names of metrics, or another name in the model",
            )
        seen.add(name)


@contextmanager
def _record_errors() -> Iterator[None]:
    """What the recording or an optimizer refuses is an error of the export."""
    try:
        yield
    except RecordError as error:
        raise as_export_error(error) from error


def check_sizes(example: Example) -> None:
    """Raise ArgumentError if inputs and target have other numbers of rows."""
    seen: dict[str, tuple[str, int]] = {}
    for name, dims in example.dims.items():
        for dim, size in zip(dims, example.arrays[name].shape, strict=True):
            if isinstance(dim, str) and seen.setdefault(dim, (name, size))[1] != size:
                first = seen[dim]
                raise ArgumentError(
                    f"the size '{dim}' has two values in the example",
                    expected=f"{first[1]}, as in '{first[0]}'", got=f"{size} in '{name}'",
                )  # fmt: skip
