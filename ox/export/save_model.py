"""`ox.export.save`: record, simplify, write and verify; the file appears only if the verification succeeds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ox._version import __version__
from ox.autograd.grad_mode import no_grad
from ox.compiler.module import OptimizedModule
from ox.core.copy_on_write import CopyOnWrite
from ox.core.mode import MODE
from ox.dtypes import is_floating
from ox.errors import ArgumentError, ExportError
from ox.export import files
from ox.export.dynamic_shapes import check_axes
from ox.export.example_inputs import Dims, read
from ox.export.host_weights import on_host
from ox.export.input_gradient import WithGradient
from ox.export.own_seed import draw_seed, free_name, with_seed_given
from ox.export.proof import Proof, ProofOptions, Row, allowance, check_finite, narrowest, prove
from ox.export.proof_cases import observed_sizes, run_cases
from ox.export.save_options import check_options
from ox.export.seed_input import Seeded
from ox.export.two_sizes import Subject, name_sizes, record_at_sizes
from ox.graph.array_bytes import slices
from ox.graph.contract import Contract, Sample, TensorInfo, dtype_name
from ox.graph.ir import Graph, Value
from ox.graph.passes.inference import for_inference
from ox.graph.passes.shape_inference import infer, simplify
from ox.graph.passes.sizes import of_counted_sizes
from ox.graph.record.restore import restored
from ox.graph.targets import find_target, for_target
from ox.graph.writer import opset as opsets
from ox.graph.writer.names import rename
from ox.graph.writer.older_opsets import in_older_words
from ox.graph.writer.workarounds import between_casts, mixed_bfloat16
from ox.graph.writer.write import to_model
from ox.nn.base.module import Module
from ox.onnx_module.loaded import Loaded
from ox.tensors.tensor import Tensor


@dataclass(frozen=True)
class Report:
    """What was exported, and how it was proven."""

    path: Path
    model: str  # the class or function that was recorded
    recorded: tuple[int, int] | None  # the batch sizes of the two recordings
    nodes: int
    contract: Contract
    proof: Proof
    opset: int
    size: int  # bytes, of the data file too
    data: Path | None = None  # external data
    metadata: dict[str, str] | None = None
    unstated: tuple[str, ...] = ()  # lines that compare sizes, or make numbers of them, as the contract cannot say

    def __str__(self) -> str:
        """The file, its inputs and outputs, and how it was proven; all of it is in the fields."""
        nodes = f"{self.nodes} node" + "s" * (self.nodes != 1)
        lines = [f"{self.path}: {self.model}, {nodes}, opset {self.opset}, {self.size:,} bytes", f"  {self.dims}"]
        lines += [f"  {line}" for line in self.limits]
        for row in self.rows:
            lines.append(f"  {row.runtime}, {row.at}: max |Δ| {row.max_abs:.1e}, at most {row.allowed:.1e}")
        lines += [f"  not proven: {text}" for text in self.proof.failed]
        if self.proof.note:
            lines.append(f"  {self.proof.note}")
        return "\n".join(lines)

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.proof.rows

    @property
    def limits(self) -> list[str]:
        """For which sizes the file is right, where that is not all of them."""
        found = [f"for {self.contract.rules}"] if str(self.contract.rules) else []  # some are said by names
        return found + [f"right only where this comes out as in the proof: {line}" for line in self.unstated]

    @property
    def dims(self) -> str:
        """``image [batch, 1, 8, 8] → logits [batch, 10]``."""
        from ox.graph.contract import show_dims

        ends = [self.contract.inputs, self.contract.outputs]
        return " → ".join(", ".join(f"{info.name} {show_dims(info.dims)}" for info in infos) for infos in ends)


def save(
    model: Callable[..., Any],
    path: str | os.PathLike[str],
    example: Any,
    *further: Any,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dims: Dims | None = None,
    dynamic_axes: Any = None,
    dynamic_shapes: Any = None,
    examples: Sequence[Any] = (),
    gradient: str | Sequence[str] = (),
    seed: str | bool | None = None,
    opset: int | None = None,
    golden: Any = True,
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    meaning: Mapping[str, str | None] | None = None,
    run: str | None = None,
    metadata: Mapping[str, str] | None = None,
    external_above: int = files.MAX_INLINE_BYTES,
    optimize: str | None = None,
    target: str | None = None,
    proof: Any = None,
) -> Report:
    """Write `model` as an ONNX file that has proven itself; a file that was there stays until the new one has.

    The model is recorded in eval mode at two batch sizes, and both recordings must be one graph. The file is checked by
    onnx.checker and strict shape inference, and run on ONNX Runtime at batch 1, 2 and 7 on rows of the example; every
    output must agree with the model's within `ox.tolerance`. Mode, parameters and running statistics of the
    model are afterwards what they were.

    Args:
        model: an `ox.nn.Module` or any function of tensors.
        example: a tensor or array, a tuple of them in the order of the arguments, or a dict by argument name. An
            argument may be a list, tuple, dict or dataclass of tensors, too; its inputs are called after it, such as
            ``cache_0_key``. More than ten rows make a better proof.
        input_names: default: the argument names of `forward`.
        output_names: default: ``output``, ``output_0``, ..., or the keys or fields of the dict or dataclass that the
            model returns; inside of others ``output_1_0``.
        dims: for an input, a size or a name a dimension; sizes with a name may vary. Default: the first dimension of
            every input is "batch", and the others are fixed. `ox.Dim` declares limits, and sizes that follow from
            others.
        dynamic_axes: the same as `torch.onnx.export` spells it: ``{"x": {0: "batch", 2: "length"}}``.
        dynamic_shapes: the same as `torch.export.export` spells it: ``{"x": {0: "batch", 2: ox.Dim("length")}}``.
        examples: further examples, in the form of `example`. Without `dims`, sizes in which they differ may vary. The
            recordings and the proof are at their sizes, in place of others near and far.
        gradient: names of inputs; for each, the file has a further output ``<name>.gradient``: the gradient of the sum
            of the first output with respect to it.
        seed: for a model that draws random numbers: the name of a further input, one int64. The file draws what the
            model does after `ox.manual_seed` of that number. True: no input; the file draws a seed itself at each run,
            by RandomUniform. It is proven with the seed as an input, and has no golden samples.
        opset: the `ai.onnx` opset; default: the lowest from 21 on that can express the model.
        golden: True for synthetic golden samples, None or False for none, or real samples in the form of `example`.
        labels: the class names of the only output, or of several by name.
        meaning: what an input or output means, by name.
        run: the name of the run that trained it.
        metadata: further `metadata_props`.
        external_above: bytes of weights above which they go to ``<name>.data`` beside the file.
        optimize: ``"inference"`` for a shorter and faster graph: batch norms are folded into the layers before them,
            what is computed from parameters alone is computed now, and the rest is simplified
            (`ox.graph.passes.inference`). Parameters of the file are then not those of the model. Default: the graph
            as the model wrote it, which can be fine-tuned.
        target: a runtime that lacks something of ONNX, for which the graph is written otherwise: ``"iree"``, ``"mnn"``,
            ``"ncnn"``, ``"opencv"``, ``"openvino"`` or ``"tvm"`` (`ox.graph.targets`). It implies ``"inference"``, and
            an opset that the runtime knows. The proof is in ONNX Runtime all the same.
        proof: ``"warn"`` writes the file even if its outputs are too far from the model's; a dict may have ``atol``
            and ``rtol`` in place of `ox.tolerance`, ``sizes``, further ones to run at (``[{"length": 512}]``), and
            ``warn``. What was proven stands in the metadata, as ``ox.proof``.

    Raises:
        ExportError: what cannot be recorded, written or proven; names the operator and the line of the model.
        ArgumentError: an example, names or dims that do not fit together.
    """
    if not callable(model):
        raise ArgumentError("the model is no module and no function", got=type(model).__name__)
    if isinstance(model, OptimizedModule):  # of ox.compile
        model = model._orig_mod
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(
            "the path is none", got=type(path).__name__, hint="ox.export.save(model, 'model.onnx', example)"
        )
    if further:
        raise ArgumentError(
            "save takes one example, which may be a tuple",
            got=f"{1 + len(further)} of them",
            hint="ox.export.save(model, path, (x, n))",
        )
    check_options(optimize=optimize, seed=seed, metadata=metadata, external_above=external_above)
    wanted = ProofOptions.read(proof)
    written_for = None if target is None else find_target(target)
    if written_for is not None and opset is None:
        opset = written_for.opset
    path = Path(path)
    weights = weights_of(model)
    with note_failure(path), _eval_mode(model), on_host(weights.values()), _lent(model, weights) as lender:
        files.check_writable(path)
        opsets.check_range(opset)
        known = model.contract if isinstance(model, Loaded) else None  # a loaded file keeps its interface
        given = read(
            model,
            example,
            input_names,
            dims,
            known,
            dynamic_axes=dynamic_axes,
            dynamic_shapes=dynamic_shapes,
            others=examples,
        )
        if output_names is None and known is not None:
            output_names = [info.name for info in known.outputs]
        called = model
        seed_name = free_name(given.arrays) if seed is True else seed or None
        if seed_name is not None:
            called, given = Seeded(model, seed_name), given.with_number(seed_name)
        if gradient:
            names = [gradient] if isinstance(gradient, str) else gradient
            called, output_names = WithGradient(called, given, names, output_names), None
        subject = Subject(called, given, weights, output_names, lender=lender)
        recorded = record_at_sizes(subject)
        graph = recorded.graph
        if recorded.draws and seed_name is None:
            raise ExportError(
                "the model draws random numbers, and the file would hold those of one call",
                where=recorded.draws,
                hint='seed="seed" for an input that they follow from, seed=True for others at each run, or the noise '
                "itself as an input; "
                ".eval() of a module that a function calls",
            )
        if seed is True and not recorded.draws:
            raise ArgumentError("the model draws no random numbers", got="seed=True", hint="save it without seed")
        if isinstance(model, Loaded):
            graph.overridable = [v for v in graph.constants if v in graph.owned and v.name in model.overridable]
            graph.declared_inputs = model.graph.declared_inputs
        _check_weights(graph)
        if mixed_bfloat16(graph):
            graph = between_casts(graph)
        names = [v.name for v in graph.outputs]
        check_axes(dynamic_axes, [*given.arrays, *names])
        with restored(subject.tensors, lender):
            cases, rules = run_cases(called, given, names, golden, recorded.rules, wanted.sizes)
        if not wanted.warn:
            hint = 'an example of numbers that the model is for; proof="warn" writes the file all the same'
            check_finite([case.outputs for case in cases if case.in_report], hint)
        shapes = [observed_sizes(given, case) for case in cases]
        inferred = simplify(graph, opset)
        if written_for is not None and opset is not None:
            inferred = for_target(graph, written_for, opset)
        elif optimize is not None:
            for_inference(graph, opset)
            inferred = simplify(graph, opset)
        rename(graph)
        counted = of_counted_sizes(graph)
        for v in graph.outputs:
            seen = [(sizes, outputs[v.name]) for sizes, outputs in shapes]
            v.dims = name_sizes(seen, inferred.get(v.name), v.name, v in counted)
        named = _labels(labels, names)
        _check_labels(named, graph.outputs)
        opset = opsets.select_opset(in_older_words(graph, opset), opset)
        infer(to_model(graph, opset=opset, weights=False))
        drawn = graph.inputs[-1] if seed is True else None  # by the file, which has no such input
        contract = Contract(
            tuple(_info(v, known.inputs if known else None, meaning, None) for v in graph.inputs if v is not drawn),
            tuple(_info(v, known.outputs if known else None, meaning, named) for v in graph.outputs),
            tuple(Sample(dict(c.inputs), dict(c.outputs)) for c in cases if not c.in_report and drawn is None),
            __version__,
            run if run is not None or known is None else known.run,
            rules,
            None if (narrow := narrowest(graph)) is None else narrow.name,
            through if isinstance(through := allowance(graph, cases), float) else None,
        )
        kept = model.metadata if isinstance(model, Loaded) else {}
        if target is not None:
            kept = {**kept, "ox.target": target}
        entries = contract.to_metadata() | kept | _buffers(model, graph) | dict(metadata or {})

        def model_proto() -> onnx.ModelProto:
            whole = to_model(graph, opset=opset, metadata=entries, weights=False)
            return whole if drawn is None else draw_seed(whole, drawn.name)

        def proof_of(written: files.Written) -> Proof:
            with nullcontext(written) if drawn is None else with_seed_given(written, drawn.name) as given_seed:
                return prove(given_seed, graph, opset, cases, wanted)

        proven, data = files.write(
            model_proto,
            graph,
            path,
            proof_of,
            external_above,
            Proof.to_metadata,
        )
        size = path.stat().st_size + (data.stat().st_size if data else 0)
        name = type(model).__name__ if isinstance(model, Module) else getattr(model, "__name__", type(model).__name__)
        batches = (2, 3) if given.batch else None
        return Report(
            path, name, batches, len(graph.nodes), contract, proven, opset, size, data, entries, recorded.unstated
        )


@contextmanager
def note_failure(path: Path) -> Iterator[None]:
    """Adds to an error of a failed export whether the file was written."""
    try:
        yield
    except ExportError as error:
        error.note = f"{path.name} was not written" if not path.exists() else f"{path.name} is what it was"
        raise


@contextmanager
def _eval_mode(model: Any) -> Iterator[None]:
    """Eval mode and no gradients; every submodule gets its own mode back."""
    if MODE.get().recording is not None:
        raise ExportError(
            "save was called inside a recording", hint="ox.export.save outside of compiled or recorded code"
        )
    modules = list(model.modules()) if isinstance(model, Module) else []
    modes = [module.training for module in modules]
    if modules:
        model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, training in zip(modules, modes, strict=True):
            object.__setattr__(module, "training", training)


def _lent(model: Any, weights: Mapping[str, Tensor]) -> CopyOnWrite:
    """The arrays of the weights, for graphs, a proof and a file to read: a copy of each would be as large as all."""
    inside = Counter(map(id, model.graph.constants.values())) if isinstance(model, Loaded) else {}
    return CopyOnWrite(weights.values(), inside)


def weights_of(model: Any) -> dict[str, Tensor]:
    """Parameters and buffers by name: what an exported file calls its initializers."""
    if not isinstance(model, Module):
        return {}
    return {**dict(model.named_parameters()), **dict(model._dense_buffers())}


def _buffers(model: Any, graph: Graph) -> dict[str, str]:
    """The initializers that are not trained, for fine-tuning of the file; one name per line."""
    if not isinstance(model, Module):
        return {}
    kept = {v.name for v in graph.owned}
    names = [name for name, _ in model._dense_buffers() if name in kept]
    return {"ox.buffers": "\n".join(names)} if names else {}


def _labels(
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None, outputs: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    if labels is None:
        return {}
    by_name = dict(labels) if isinstance(labels, Mapping) else {outputs[0]: labels}
    unknown = [name for name in by_name if name not in outputs]
    if unknown or (len(outputs) > 1 and not isinstance(labels, Mapping)):
        raise ArgumentError(
            "labels do not name an output", expected=f"a dict with keys of {', '.join(outputs)}",
            got=", ".join(unknown) or "a list",
        )  # fmt: skip
    return {name: tuple(map(str, each)) for name, each in by_name.items()}


def _check_labels(labels: Mapping[str, tuple[str, ...]], outputs: Sequence[Value]) -> None:
    """As many labels as the last dimension of their output has scores."""
    for value in outputs:
        scores = value.dims[-1] if value.dims else None
        if value.name in labels and isinstance(scores, int) and scores != len(labels[value.name]):
            raise ArgumentError(
                f"the labels do not fit output '{value.name}'",
                expected=f"{scores}, one for each of its scores",
                got=f"{len(labels[value.name])}: {', '.join(labels[value.name][:4])}, ...",
            )


def _check_weights(graph: Graph) -> None:
    """No NaN among the weights: such a model answers nothing, and yet a proof finds it equal to itself."""
    for value in graph.owned:
        array = graph.constants[value]
        if is_floating(array.dtype) and (count := sum(int(np.isnan(part).sum()) for part in slices(array))):
            raise ExportError(
                f"'{value.name}' holds NaN",
                got=f"{count} of {array.size} values",
                hint="a checkpoint from before the loss became NaN; ox.autograd.detect_anomaly finds where it did",
            )


def _info(
    value: Value,
    known: Sequence[TensorInfo] | None,
    meaning: Mapping[str, str | None] | None,
    labels: Mapping[str, tuple[str, ...]] | None,
) -> TensorInfo:
    assert value.dtype is not None and value.dims is not None
    before = next((info for info in known or () if info.name == value.name), None)
    told = (meaning or {}).get(value.name) or (before.meaning if before else None)
    named = (labels or {}).get(value.name) or (before.labels if before else None)
    return TensorInfo(value.name, dtype_name(value.dtype), tuple(value.dims), told, named)
