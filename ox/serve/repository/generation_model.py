"""A model on the server that generates texts."""

from __future__ import annotations

import gc
import weakref
from asyncio import AbstractEventLoop
from dataclasses import fields, replace
from typing import Any, NoReturn

from ox.errors import LoadError, ServeError
from ox.graph.contract import SizeRules, TensorInfo
from ox.serve.batching.admission import Budget
from ox.serve.batching.fairness import CORES
from ox.serve.batching.job import Job
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.placement import Placement
from ox.serve.config.request_limits import RequestLimits
from ox.serve.generation.decoder import Decoder
from ox.serve.generation.decoder_folder import DecoderFolder
from ox.serve.generation.decoder_memory import HOST
from ox.serve.generation.decoder_run import SharedCacheRun
from ox.serve.generation.draft_model import PART, load_draft
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.gpu_claims import GpuClaims
from ox.serve.generation.scheduler import MIB, cache_budget
from ox.serve.gpu_budget import InsufficientMemoryError
from ox.serve.protocol.v2.signature import Signature
from ox.serve.repository.model import Model
from ox.serve.repository.setup import Running
from ox.serve.repository.thread import in_thread
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.device_memory import free_pools
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.providers import warn_of_cpu
from ox.serve.runtime.source import Source
from ox.serve.telemetry.stages import Stages

# Names and types of Triton's backends for language models.
INPUTS = (
    TensorInfo("text_input", "BYTES", (1,), "the prompt"),
    TensorInfo("stream", "BOOL", (1,), "whether each token is an answer"),
    TensorInfo("sampling_parameters", "BYTES", (1,), 'a JSON object, such as {"max_tokens": 20}'),
)
OUTPUTS = (TensorInfo("text_output", "BYTES", (1,), "the text, or a part of it"),)
# Settings that have no meaning here, with the values that say nothing.
TENSOR_SETTINGS: dict[str, tuple[Any, ...]] = {
    "max_rows": (None, 0, 1), "max_wait_ms": (0,), "instances": (None, 1), "pad": ({},), "mask": (None,),
    "max_dims": ({},), "dtype": (None,), "memory_mib": (None,),
}  # fmt: skip


def check_settings(name: str, running: Running) -> None:
    """Refuses settings of one model that a decoder would ignore. Settings of all models may be for others.

    Raises:
        LoadError: there is one.
    """
    for setting in running.own:
        if setting not in TENSOR_SETTINGS:
            continue
        value = running.memory_mib if setting == "memory_mib" else getattr(running.options, setting)
        if value not in TENSOR_SETTINGS[setting]:
            known = [entry.name for entry in fields(ModelConfig) if entry.name not in TENSOR_SETTINGS]
            raise LoadError(
                f"{name}: the setting {setting} is for models of tensors, and this one generates texts",
                expected=", ".join(known),
                got=f"{setting} = {value!r}"[:200],
                hint="remove it; generation = { max_texts = ..., cache_mib = ... } says how much runs at once",
            )


class GenerationModel(Model):
    """One version of a decoder. Requests go to `generation`; there are no rows, no batches and no samples.

    Args:
        source: the checked file; tokenizer and defaults lie beside it.

    Raises:
        LoadError: the decoder, or what lies beside it, cannot be used, or the cache does not fit.
        DeviceError: no runtime, or a GPU is asked for that cannot be used.
    """

    generation: GenerationEngine

    def __init__(
        self,
        source: Source,
        options: ModelConfig,
        limits: RequestLimits,
        *,
        name: str,
        version: str,
        budget: Budget | None = None,
        control: LoadControl | None = None,
    ) -> None:
        control = control or LoadControl()
        clock = self.clock = control.clock
        started = clock.now()
        self.name, self.version, self.options, self.closed = name, version, options, False
        self.inputs, self.outputs, self.samples = INPUTS, OUTPUTS, ()
        self.signature = Signature(INPUTS, OUTPUTS, limits.rows, limits.strings, batched=False)
        self.signature.add_optional_inputs = self._refuse  # before an input is missed
        self.stages, self.rules, self.padding, self.sequences = Stages(clock), SizeRules(), None, None
        self.inline = False
        budget = budget or Budget(limits.buffered, limits.states, ResponseMemory(limits.unread, clock))
        self.answers = budget.answers
        control.enter("reading the tokenizer")
        folder = DecoderFolder.read(source.path)
        generation = GenerationOptions.from_table(options.generation)
        cuda = CudaOptions.from_table(options.cuda)
        claims = GpuClaims(budget.gpu, f"{name} {version}", cuda.gpu_mem_limit) if budget.gpu.limit else None
        self._give_back = weakref.finalize(self, claims.release if claims else bool)
        try:
            self._load(source, folder, generation, cuda, claims, control)
        except BaseException:
            self._give_back()
            raise
        self.warm_s = clock.now() - started

    def _load(
        self,
        source: Source,
        folder: DecoderFolder,
        generation: GenerationOptions,
        cuda: CudaOptions,
        claims: GpuClaims | None,
        control: LoadControl,
    ) -> None:
        """On the device of the options; with `auto` on the CPU where the GPU has no room for the cache, unless the
        model has options of CUDA, which the CPU refuses."""
        self._gpus: list[int] = []
        try:
            self._load_on(self.options.device, source, folder, generation, cuda, claims, control)
            return
        except InsufficientMemoryError as error:
            if claims is not None:
                cuda = replace(cuda, gpu_mem_limit=None)  # which a limit of all models needs on a GPU
            if Placement.parse(self.options.device).kind != "auto" or not self._gpus or cuda != CudaOptions():
                raise
            control.check()
            warn_of_cpu(error)
        with GATE.using():
            gc.collect()  # the sessions
            free_pools(self._gpus)
        if claims is not None:
            claims.release()
        self._load_on("cpu", source, folder, generation, cuda, None, control)

    def _load_on(
        self,
        device: str,
        source: Source,
        folder: DecoderFolder,
        generation: GenerationOptions,
        cuda: CudaOptions,
        claims: GpuClaims | None,
        control: LoadControl,
    ) -> None:
        options = self.options
        decoder = Decoder(source, options.threads, control, folder, device, cuda, claims)
        control.enter("loading the draft model")
        memory = decoder.run.memory
        self._device = "cpu" if memory is HOST else f"{memory.kind}:{memory.number}"
        draft_device = "cpu" if memory is HOST else f"auto:{memory.number}"
        self._gpus = [] if memory is HOST else [memory.number]
        draft = load_draft(generation, folder, decoder.vocab_size, options.threads, control, draft_device, claims)
        control.enter("making the cache")
        free = claims.free(memory.number) if claims and self._gpus else None
        cache = cache_budget(generation, memory, free)
        if claims is not None and self._gpus:
            claims.cache(memory.number, cache + _staged_bytes(decoder, draft, generation, cache))
        self.threads, self.instances, self._form, self._cache = decoder.threads, 1, decoder.form, cache
        self._share = CORES.share(options.weight, decoder.threads)
        self.generation = GenerationEngine(
            decoder,
            folder,
            generation,
            cache,
            max_queue=options.max_queue,
            start_s=options.deadline_ms / 1000,
            levels=options.priority_levels,
            usual_level=options.default_priority,
            share=self._share,
            draft=draft,
            clock=self.clock,
            max_graphs=options.max_graphs,
        )
        if claims is not None and self._gpus:
            claims.graphs(memory.number, memory.graph_bytes)

    def start(self, loop: AbstractEventLoop) -> None:
        self._share.open()

    def abort(self) -> None:
        self.generation.stop()

    def release(self) -> None:
        self.generation.close(finish=False)
        self._end()

    def submit(self, job: Job) -> None:
        """Raises ServeError (400): requests for texts have routes of their own."""
        self._refuse()

    def _refuse(self, *given: object) -> NoReturn:
        raise ServeError(
            f"'{self.name}' generates texts, and answers no requests of tensors",
            hint=f"/v1/completions, /v2/models/{self.name}/generate, or generation = false in ox.toml",
        )

    @property
    def depth(self) -> int:
        waiting: int = self.generation.stats()["waiting"]
        return waiting

    async def close(self) -> None:
        self.closed = True
        await in_thread(self.generation.close, f"ox-drain-{self.name}")
        self._end()

    def _end(self) -> None:
        self._share.close()
        if self._gpus:
            with GATE.using():
                free_pools(self._gpus)  # which would keep what the model no longer claims
        self._give_back()

    def describe(self) -> str:
        engine = self.generation
        threads = f"{self.threads} thread" + ("s" if self.threads > 1 else "")
        texts = f"up to {engine.max_texts} texts at once, {engine.context_length:,} tokens each"
        tokenizer = "no tokenizer" if engine.tokenizer is None else f"{engine.tokenizer.vocab_size:,} tokens"
        parts = [f"{self.name} {self.version}", f"generates texts on {self._device}", threads, texts, tokenizer]
        return " · ".join([*parts, f"{self._form}, {self._cache // MIB:,} MiB"])


def _staged_bytes(decoder: Decoder, draft: Decoder | None, options: GenerationOptions, cache: int) -> int:
    """Of a GPU, beside the cache."""
    staged = 0
    for each, texts, part in ((decoder, options.max_texts, options.prefill_tokens), (draft, 1, PART)):
        if each is not None and isinstance(each.run, SharedCacheRun) and each.run.memory is not HOST:
            token_bytes = sum(shape.nbytes for shape in each.shapes.values())
            staged += each.run.staged_bytes(texts, part, cache // token_bytes)
    return staged
