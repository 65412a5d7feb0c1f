"""A model on the server: its engine, its proof, its codec and its queue."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, count
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from ox.errors import LoadError, ServeError
from ox.graph.contract import Contract, TensorInfo
from ox.serve.batching.admission import Budget, QueueAdmission
from ox.serve.batching.batcher import Batcher
from ox.serve.batching.batcher import Instance as BatcherInstance
from ox.serve.batching.fairness import CORES
from ox.serve.batching.job import Job
from ox.serve.batching.padding import Padding
from ox.serve.batching.result_size import ResultSize
from ox.serve.batching.sequence_tensors import SequenceTensors
from ox.serve.batching.sequences import Sequences
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.v2.signature import Signature
from ox.serve.repository.model_padding import ModelPadding, graphs
from ox.serve.repository.thread import in_thread
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.device_memory import free_pools
from ox.serve.runtime.dimension_memory import check_smallest, dimension_limits
from ox.serve.runtime.float16 import to_float16
from ox.serve.runtime.instance import Instance
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.proof import check_golden
from ox.serve.runtime.reshape import Reshaped, Reshapes
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import Source, read
from ox.serve.telemetry.stages import Stages
from ox.serve.text.padding_proof import padding_difference
from ox.serve.text.submission import TextSubmission
from ox.serve.text.text_instance import TextInstance
from ox.serve.text.text_tensors import TextTensors
from ox.serve.tuning.measure import HANDOFF_S, fit, padded_rows

if TYPE_CHECKING:
    from ox.serve.generation.engine import GenerationEngine
    from ox.serve.protocol.text.text_model import TextModel

Infos = tuple[TensorInfo, ...]
TensorCheck = Callable[[str, Infos], Infos]
Sequenced = Callable[[Infos, Infos], SequenceTensors]
Texts = Callable[[Infos, Infos], TextTensors | None]

MEASURED = "measured: more would need twice the memory of all runs"
MAX_INLINE_S = 1e-3


class Model:
    """Loads one version of a model from its file, proves it and makes it ready to answer.

    Args:
        path: the file, or what was read of it.
        options: how it is run.
        limits: the most rows of a request.
        name: what it answers to; without one its file's stem.
        version: which version of that name it is.
        check_tensors: gives the inputs or outputs as they are described elsewhere; raises LoadError if they are others.
        reshapes: the tensors that clients see in another shape than the file has.
        sequence: makes the controls and states of a model of sequences, given all inputs and outputs of the file.
        text: makes the strings that clients send of a model with a tokenizer beside it, given all inputs and outputs of
            the file; None for a model that reads none.
        budget: what it shares with the other models of its server; without one it has its own.
        control: stops the load from another thread, and receives its progress; it has the clock of the model.
        probe: looks at the file before a runtime does; raises OxError if it may not be loaded here.
        max_rows_source: which setting the most rows of a batch are from, as users read it where batching is off.

    Raises:
        LoadError: the file is damaged, hostile, unknown to the runtime, or contradicts itself.
        DeviceError: no runtime, or not the requested device.
    """

    text_tensors: TextTensors | None = None  # of a model that reads strings
    generation: GenerationEngine | None = None  # of a model that generates texts
    text: TextModel | None = None  # what the dialects need of such a model

    def __init__(
        self,
        path: str | Path | Source,
        options: ModelConfig,
        limits: RequestLimits,
        *,
        name: str = "",
        version: str = "1",
        check_tensors: TensorCheck | None = None,
        reshapes: Reshapes | None = None,
        sequence: Sequenced | None = None,
        text: Texts | None = None,
        budget: Budget | None = None,
        control: LoadControl | None = None,
        probe: Callable[[Source], None] | None = None,
        max_rows_source: str | None = None,
    ) -> None:
        control = control or LoadControl()
        clock = self.clock = control.clock
        started = clock.now()
        control.enter("reading the file")
        source = path if isinstance(path, Source) else read(Path(path))
        if probe is not None:
            probe(source)
        self.name, self.version = name or source.path.stem, version
        self.options, self.closed = options, False
        contract = Contract.from_metadata(source.metadata)
        if options.dtype is not None:
            source, contract = to_float16(source, contract, control)
        cuda = CudaOptions.from_table(options.cuda)
        budget = budget or Budget(limits.buffered, limits.states, ResponseMemory(limits.unread, clock))
        claim = partial(budget.gpu.claim, f"{self.name} {version}") if budget.gpu.limit else None
        engine = Engine(
            source, options.device, options.instances, options.threads or 1, limits.memory, control, cuda, claim
        )
        if engine.uses_tf32 and contract.through is None:
            contract = replace(contract, precision="float16")
        self.inputs = _described(self.name, "input", engine.inputs, contract.inputs)
        self.outputs = _described(self.name, "output", engine.outputs, contract.outputs)
        tensors = None if sequence is None else sequence(self.inputs, self.outputs)
        if tensors is not None:
            self.inputs, self.outputs = tensors.inputs, tensors.outputs
        self.text_tensors = None if text is None else text(self.inputs, self.outputs)
        if self.text_tensors is not None:
            self.inputs, self.outputs = self.text_tensors.inputs, self.text_tensors.outputs
        if check_tensors is not None:
            self.inputs, self.outputs = check_tensors("input", self.inputs), check_tensors("output", self.outputs)
        check_golden(self.name, engine, contract.samples, contract.through, source.operators)
        self.rules = contract.rules
        alone = _needs_own_runs(contract)
        if alone is not None:
            options, max_rows_source = replace(options, max_rows=1), alone
        self._reshapes = reshapes or None
        self.samples = tuple(map(reshapes.sample, contract.samples)) if reshapes else contract.samples
        if tensors is not None or self.text_tensors is not None:
            self.samples = ()  # they hold what clients do not send
        known = contract.samples if self.text_tensors is None else self.text_tensors.golden()
        self.fit = fit(source, engine, known, options, contract.through, max_rows_source)
        self.engine, self.proof = self.fit.engine, self.fit.proof
        if self.proof.row is None:
            check_smallest(self.name, self.engine)
        self.instances, self.threads = self.fit.instances, self.fit.threads
        on_gpu = self.engine.device == "cuda"
        self._result_size = ResultSize(self.engine.outputs if self.text_tensors is None else self.outputs, limits.reply)
        self.padded = ModelPadding()
        padding = None
        if options.pad:
            padding = Padding(self.inputs, self.outputs, options.pad, options.mask, on_gpu, options.max_dims)
            refusal = "no batches" if self.proof.why is not None else None
            refusal = refusal or ("the configuration reshapes tensors" if reshapes else None)
            refusal = refusal or ("the model keeps state of sequences" if tensors else None)
            self.padded = ModelPadding.of(padding, source, self.engine, contract, refusal)
        self.padding, bound = self.padded.padding, self.fit.bound
        whole = self.padding
        if self.text_tensors is not None:
            refusal = padding_difference(self.engine.run, self.text_tensors, contract.through)
            self.padded = ModelPadding(refusal=refusal)
            if on_gpu and refusal is None:
                whole = self.text_tensors.padding(self.engine.outputs, options.max_dims)
        if whole is not None and not bound:
            bound = padded_rows(self.engine, self.proof, whole, contract.through)
        self.graphs = None
        if cuda.enable_cuda_graph:
            self.graphs = graphs(self.name, self.engine, self.proof, options, bound, whole, self.padded.refusal)
        self._whole = whole if bound else None
        buffered = partial(self.engine.instance, bound=bound, padding=self._whole)
        instances = [buffered(index) for index in range(self.instances)]
        if self.proof.row is not None:
            try:
                for instance in instances[0 if cuda.enable_cuda_graph else 1 :]:  # the proof has warmed the first
                    instance.prepare(self.proof.row)
                if not self._result_size.known and self.text_tensors is None:
                    self._result_size.learn(self.proof.row, 1, instances[0]((self.proof.row,)))
            except Exception:  # ONNX Runtime's own, where the load was ended during the run
                self.engine.loading.check()
                raise
        batched = self.proof.why is None or self.text_tensors is not None  # texts are put together behind the queue
        if batched:
            self.inputs = _sharing_rows(self.inputs)
        most = {
            name: (size, MEASURED)
            for name, size in dimension_limits(self.engine, self.proof.row, options.max_dims).items()
        }
        most |= {name: (size, "--max-dim") for name, size in options.max_dims.items()}
        if tensors is not None:
            tensors.limit_dimensions(most)
        if self.text_tensors is not None:
            self.text_tensors.limit_length(most)
        rules = contract.rules if contract.rules or contract.version is not None else None  # others say nothing of 0
        self.signature = Signature(self.inputs, self.outputs, limits.rows, limits.strings, batched, most, rules)
        self.signature.allow_empty = "Scan" not in source.operators
        self.signature.allow_no_rows = self.text_tensors is None and self.padding is None and tensors is None
        if padding is not None:
            self.signature.add_optional_inputs = padding.complete
        if self.text_tensors is not None:
            self.signature.add_optional_inputs = self.text_tensors.add_pair
        self.stages = Stages(clock)
        fixed = all(isinstance(size, int) for info in self.inputs for size in info.dims[1:])
        self._runs_inline = (
            self.proof.row_s < HANDOFF_S and fixed and not (on_gpu or source.may_run_long or options.max_wait_ms)
        ) and self.text_tensors is None
        self.inline = self._runs_inline and tensors is None
        self._mean_s, self.answers = self.proof.row_s, budget.answers
        admission = QueueAdmission(
            max_queue=options.max_queue,
            deadline_s=options.deadline_ms / 1000,
            timeout_s=limits.timeout_s,
            budget=budget,
            levels=options.priority_levels,
            usual=options.default_priority,
            instances=self.instances,
        )
        inline = None if on_gpu else self._for_clients(buffered(0))
        self.batcher = Batcher(
            list(map(self._for_clients, instances)),
            inline=inline,
            admission=admission,
            max_rows=self.proof.max_rows,
            max_wait_s=options.max_wait_ms / 1000,
            observe=self._ran,
            padding=self.padding,
            share=None if on_gpu else CORES.share(options.weight, self.threads),
            memory=self.answers,
            result_size=self._result_size,
            clock=clock,
        )
        self._submission = None if self.text_tensors is None else TextSubmission(self.text_tensors, self.batcher.submit)
        self.sequences = None if tensors is None else self._sequences(tensors, budget, limits.timeout_s)
        self.engine.end_load()  # raises if it was ended on the way: such runs look like runs that fail
        self.warm_s = clock.now() - started

    def _sequences(self, tensors: SequenceTensors, budget: Budget, timeout_s: float) -> Sequences:
        config = tensors.config
        self.batcher.fill_rows = max(1, ceil(config.utilization * self.proof.max_rows))
        return Sequences(
            self.name,
            tensors,
            self.batcher,
            self._run_step,
            slots=config.slots * (self.instances if config.per_instance else 1),
            idle_s=config.idle_s,
            max_queue=self.options.max_queue,
            deadline_s=self.options.deadline_ms / 1000,
            timeout_s=timeout_s,
            budget=budget,
        )

    def _for_clients(self, instance: Instance) -> BatcherInstance:
        """The instance with tensors as clients see them."""
        if self.text_tensors is not None:
            padded = self.padded.refusal is None
            return TextInstance(instance, self.text_tensors, self.proof.max_rows, padded, self._whole)
        if self._reshapes is None:
            return instance
        return Reshaped(instance, self._reshapes, [info.name for info in self.engine.outputs])

    def start(self, loop: AbstractEventLoop) -> None:
        """Answers from now on, on this event loop."""
        self.batcher.start(loop)

    def abort(self) -> None:
        """Begins to end everything at once; `release` follows."""
        self.batcher.abort()

    def release(self) -> None:
        """Waits for the end after `abort`."""
        self.batcher.close()

    def submit(self, job: Job) -> None:
        """Has a job run; `job.done()` follows on the event loop.

        Raises:
            ServeError: the queue is full, or the model is closed.
        """
        if self.closed:
            what = f"version {self.version} of model '{self.name}' has just been unloaded"
            raise ServeError(what, status=503, hint="again in a moment")
        if self._submission is not None:
            self._submission(job)
        elif (
            self.inline and job.request.rows <= self.proof.max_rows and job.request.rows <= self._result_size.small_rows
        ):
            self.batcher.submit_inline(job)
        elif self.sequences is None:
            self.batcher.submit(job)
        else:
            self.sequences.submit(job)

    def _run_step(self, job: Job) -> None:
        """Has a job of a sequence run whose turn it is."""
        if self._runs_inline and job.request.rows <= self._result_size.small_rows:
            self.batcher.submit_inline(job)
        else:
            self.batcher.submit(job)

    @property
    def depth(self) -> int:
        """Requests that wait."""
        further = (each.waiting for each in (self.sequences, self._submission) if each is not None)
        return self.batcher.depth + sum(further)

    async def close(self) -> None:
        """Finishes what was accepted, however long that takes, and frees the memory. On the event loop."""
        self.closed = True
        if self.sequences is not None:
            await self.sequences.drain()
        if self._submission is not None:
            await self._submission.drain()
        self.batcher.finish()
        # What came in this turn of the loop runs at its end, which comes before the news from another thread.
        await in_thread(self.batcher.join, f"ox-drain-{self.name}")
        self.batcher.close()
        claimed = self.engine.buffers  # until the memory is free: else a budget might look at the GPU before
        with GATE.using() if self.engine.device == "cuda" else nullcontext():  # memory of the GPU is freed
            # by hand, because they refer to one another and to this
            del self.batcher, self.sequences, self._submission, self.engine, self.fit
            free_pools(claimed.gpus)  # which would keep what the model no longer claims

    def _ran(self, rows: int, run_s: float, gather_s: float) -> None:
        self.stages.ran(rows, run_s, gather_s)
        # A model that turns out slower than it was when it was measured may not hold up everybody else.
        self._mean_s += (min(run_s / max(rows, 1), MAX_INLINE_S) - self._mean_s) / 64
        if self._mean_s > 4 * HANDOFF_S:
            self.inline = self._runs_inline = False

    def describe(self) -> str:
        """The line that the server prints: device, instances, batching."""

        def counted(number: int, noun: str) -> str:
            return f"{number} {noun}" + ("s" if number > 1 else "")

        size = f"{counted(self.instances, 'instance')} × {counted(self.threads, 'thread')}"
        if "threads" in self.fit.measured:
            size += " (measured)"
        batches = f"batch size up to {self.proof.max_rows}"
        if "rows" in self.fit.measured:
            batches += " (measured)"
        batches += ", proven safe"
        if self.proof.why is not None:
            batches = f"batching off: {self.proof.why}"
        parts = [f"{self.name} {self.version}", f"{self.engine.place} ({self.engine.provider})", size, batches]
        if self.text_tensors is not None:
            parts.append(str(self.text_tensors))
        if self.padded != ModelPadding():
            parts.append(str(self.padded))
        if self.graphs is not None:
            parts.append(self.graphs)
        if self.sequences is not None:
            parts.append("in sequences")
        if str(self.rules):
            parts.append(f"for {self.rules}")
        if self.inline:
            parts.append(f"{1e6 * self.proof.row_s:.0f} µs per sample, run in the event loop")
        return " · ".join(parts)


def _needs_own_runs(contract: Contract) -> str | None:
    """Why requests cannot share a batch as far as the file says for which sizes it is right; None if they can."""
    rows = {info.dims[0] for info in contract.inputs if info.dims}
    return f"the file is for {contract.rules}" if contract.rules.names() & rows else None


def _sharing_rows(inputs: tuple[TensorInfo, ...]) -> tuple[TensorInfo, ...]:
    """The inputs of a model that takes batches, by one name for their first dimension: requests must agree on it."""
    if len({info.dims[:1] for info in inputs}) == 1 and inputs[0].dims[:1] != (None,):
        return inputs
    taken = {dim for info in inputs for dim in info.dims[1:]}
    name = next(name for name in chain(["batch"], map("batch_{}".format, count())) if name not in taken)
    return tuple(replace(info, dims=(name, *info.dims[1:])) for info in inputs)


def _described(
    name: str, kind: str, actual: tuple[TensorInfo, ...], declared: tuple[TensorInfo, ...]
) -> tuple[TensorInfo, ...]:
    """The graph's interface, with meanings and labels from the contract, which may not contradict it."""
    if not declared:
        return actual
    contract = {info.name: info for info in declared}
    for info in actual:
        if info.name not in contract or contract[info.name].dtype != info.dtype:
            raise LoadError(
                f"{name}: the contract in the file does not match its graph",
                where=f"{kind} '{info.name}'",
                expected=str(info),
                got=", ".join(map(str, declared)),
                hint="export the model again",
            )
    return tuple(
        replace(info, meaning=contract[info.name].meaning, labels=contract[info.name].labels) for info in actual
    )
