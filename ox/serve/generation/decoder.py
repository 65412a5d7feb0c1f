"""Loads a decoder: into the fastest form that gives the same scores as the file itself."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ox.devices.cuda import check_bfloat16, cupy
from ox.devices.machine import available_memory
from ox.devices.machine import threads as usable_threads
from ox.devices.probe import CPU, CUDA
from ox.devices.runtime import onnxruntime
from ox.errors import DeviceError, LoadError, first_line
from ox.graph.bfloat16_file import cast_weights, widen
from ox.graph.contract import DTYPES, Contract
from ox.graph.reader.model_file import parse
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.placement import Placement
from ox.serve.generation.cache_slots import CacheShape, CacheSlots
from ox.serve.generation.decoder_check import CHECKS, LONGEST, Checked, DecoderCheck, ScoresDiffer
from ox.serve.generation.decoder_folder import DECODER, DecoderFolder
from ox.serve.generation.decoder_memory import HOST, GpuMemory, HostMemory
from ox.serve.generation.decoder_run import TYPES, AppendedCacheRun, SharedCacheRun
from ox.serve.generation.gpu_claims import GpuClaims
from ox.serve.runtime import providers
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.decoder_graph import PAST, DecoderGraph, PatternMissing
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.runners import BFLOAT16
from ox.serve.runtime.source import Source
from ox.serve.runtime.standard_form import StandardForm, standardize, take_branch_with_past

MOST_POSITIONS = 1 << 18  # of a table of rotary embeddings
UNLIMITED = 1 << 31  # of a file that does not tell its context length


class Rewriting(NamedTuple):
    """What is done to the graph beside sharing the cache."""

    choose_scores: bool = True
    join_products: bool = True
    rotary: bool = True


# in the order in which they are tried
REWRITINGS = (
    Rewriting(),
    Rewriting(rotary=False),
    Rewriting(rotary=False, join_products=False),
    Rewriting(False, False, False),
)

log = logging.getLogger("ox.serve")


class Decoder:
    """A decoder in ONNX Runtime.

    Args:
        source: its checked file.
        threads: of ONNX Runtime; None: measured.
        control: ends the load from another thread.
        folder: tells what the file does not: the longest context, sizes, and other names of inputs and outputs.
        device: "cpu", a GPU ("cuda", "cuda:1"), or "auto": a GPU where one works and the decoder is one for it.
        cuda: options of the CUDA provider.
        claims: of memory on GPUs; None where no model needs to claim it.

    Attributes:
        threads: of a run.
        rewriting: of its graph, if the cache is shared.
        shapes: of keys and values where it runs, by the name of the input.
        run: how it is run.
        form: that in words.
        batched: whether texts of several lengths may share a run.

    Raises:
        LoadError: ONNX Runtime refuses it, it has other inputs and outputs, or its scores on the GPU are others.
        DeviceError: CUDA is asked for and does not work, or works for no decoder like this.
    """

    def __init__(
        self,
        source: Source,
        threads: int | None = None,
        control: LoadControl | None = None,
        folder: DecoderFolder | None = None,
        device: str = "cpu",
        cuda: CudaOptions | None = None,
        claims: GpuClaims | None = None,
    ) -> None:
        self._claims = claims
        self._source, self.path, self.threads = source, source.path, threads or usable_threads()
        self._folder = folder or DecoderFolder(source.path, {}, None)
        self._control = control or LoadControl()
        self._file, form = self._standard_file()
        original = self._session(self._file)
        self.shapes = self._cache_shapes(original)
        through = gpu_through = Contract.from_metadata(source.metadata).through
        gpu_shapes = self.shapes
        if self._is_bfloat16:
            dtype = DTYPES["BF16"]
            gpu_through, gpu_shapes = dtype, {name: each._replace(dtype=dtype) for name, each in self.shapes.items()}
        self.vocab_size, self.context_length = self._sizes(original)
        if form.longest is not None and form.longest < self.context_length:
            log.warning("%s: texts have at most %d tokens: %s", self.path, form.longest, form.why)
            self.context_length = form.longest
        self._check_memory()
        facts = (self.shapes, gpu_shapes, self.vocab_size, self.context_length, source.operators, through, gpu_through)
        self._check = DecoderCheck(Checked(source.path, *facts), original, self._control.clock.now)
        self.batched = True
        self.run, self.form = self._on_gpu(device, cuda or CudaOptions()) or self._fastest(original)
        if self.run.memory is not HOST:
            self.shapes = gpu_shapes
        if cuda is not None and claims is not None and Placement.parse(device).kind == "auto":
            cuda = replace(cuda, gpu_mem_limit=None)  # which a limit of all models needs on a GPU
        if self.run.memory is HOST and cuda not in (None, CudaOptions()):
            raise providers.ignored_options(self.path, CPU)
        if threads is None and self.threads > 1 and self.run.memory is HOST:
            self._measure_threads()

    def _standard_file(self) -> tuple[str | bytes, StandardForm]:
        """What ONNX Runtime gets: the file, or bytes where something is changed."""
        model, form = self._parsed()
        return model.SerializeToString() if form.changed else str(self.path), form

    def _parsed(self, memory: HostMemory = HOST) -> tuple[Any, StandardForm]:
        """The file, in the form that is known here; on the CPU in float32, where it is in bfloat16."""
        model = parse(self.path)
        form = standardize(model, self._folder.names, self._folder.window)
        types = {info.type.tensor_type.elem_type for info in model.graph.input if PAST.fullmatch(info.name)}
        self._is_bfloat16 = types == {BFLOAT16}
        if self._is_bfloat16 and memory is HOST:
            widen(model)
            form = form._replace(changed=True)
        return model, form

    def _sizes(self, session: Any) -> tuple[int, int]:
        """How many tokens the model knows, and how many it can see."""
        about = json.loads(self._source.metadata.get(DECODER, "{}"))
        context_length = self._folder.context_length or UNLIMITED
        shape = next(info.shape for info in session.get_outputs() if info.name == "logits")
        if not isinstance(about, dict):
            raise LoadError(f"the metadata {DECODER} of {self.path} is no JSON object", got=repr(about)[:100])
        said = shape[-1] if isinstance(shape[-1], int) else self._folder.vocab_size
        size, length = about.get("vocab_size", said), about.get("context_length", context_length)
        known = size == shape[-1] or not isinstance(shape[-1], int)
        if type(size) is not int or not known or size < 1 or type(length) is not int or length < 2:
            raise LoadError(
                f"{self.path} does not tell how many tokens it knows and sees",
                expected="a number of scores, and a context of two tokens or more",
                got=f"logits {shape}; {DECODER} {about}"[:200],
            )
        return size, length

    def _check_memory(self) -> None:
        """Raises LoadError if the check of a long text does not fit."""
        needed = min(self.context_length, LONGEST) * sum(shape.nbytes for shape in self.shapes.values())
        if CHECKS * needed > available_memory():
            raise LoadError(
                f"keys and values of one text of {self.path} do not fit into the memory that there is",
                expected=f"at most {available_memory() // CHECKS >> 20:,} MiB for {self.context_length:,} tokens",
                got=f"{needed >> 20:,} MiB",
            )

    def _on_gpu(self, device: str, cuda: CudaOptions) -> tuple[SharedCacheRun, str] | None:
        """The decoder on a GPU; None where it runs on the CPU."""
        placement = Placement.parse(device)
        if placement.kind == "tensorrt":
            raise DeviceError("texts are generated by no TensorRT", expected="cuda, cpu or auto", got=device)
        if providers.choose(onnxruntime(), device)[0] != CUDA:
            return None
        number = placement.number(0)
        if self._claims is not None:  # a draft model has the limit of the model that it drafts for
            cuda = replace(cuda, gpu_mem_limit=self._claims.session_limit)
        try:
            self._check_for_gpu(placement)
            providers.check_limit(self._source, cuda.gpu_mem_limit)
            with self._claims.loading(self.path, number, self._check.nbytes) if self._claims else nullcontext():
                run, reasons = self._first_right(GpuMemory(number, cuda))
                if run is None:
                    what = f"{self.path} does not run on cuda:{number}"
                    raise LoadError(what, expected="the scores of the file on the CPU", got="; ".join(reasons))
        except (DeviceError, LoadError) as error:
            if placement.kind == "cuda":
                raise
            self._control.check()
            providers.warn_of_cpu(error)
            return None
        return run, "shared cache"

    def _check_for_gpu(self, placement: Placement) -> None:
        """Raises DeviceError for what no decoder can have on a GPU."""
        if len(set(placement.numbers)) > 1:
            raise DeviceError("text is generated on one GPU", expected="cuda:0", got=str(placement))
        runtime = cupy().cuda  # the KV cache is in CuPy's memory
        if self._is_bfloat16:
            with runtime.Device(placement.number(0)):
                check_bfloat16(f"{self.path}, which is in bfloat16,")
            return
        if (types := sorted({str(shape.dtype) for shape in self.shapes.values()})) != ["float16"]:
            raise DeviceError(
                f"{self.path} has a cache of {', '.join(types)}",
                expected="float16 or bfloat16, which GroupQueryAttention takes on a GPU",
                got=", ".join(types),
                hint="ox.export.save_decoder(model.half(), ...); or --device cpu",
            )

    def _fastest(self, original: Any) -> tuple[SharedCacheRun | AppendedCacheRun, str]:
        run, reasons = self._first_right(HOST)
        if run is not None:
            return run, "shared cache"
        log.warning("%s: the cache is copied with each token: %s", self.path, "; ".join(reasons))
        return self._appended(original), "copied cache"

    def _first_right(self, memory: HostMemory) -> tuple[SharedCacheRun | None, list[str]]:
        """The first rewriting that gives the scores of the file, or why each of them does not.

        Args:
            memory: of the device.
        """
        reasons = []
        for rewriting in REWRITINGS:
            self._control.enter("checking the graph with a shared cache")
            run: SharedCacheRun | None = None
            try:
                run = self._shared(rewriting, memory)
                self._check.check(run)
                self.rewriting = rewriting
                return run, []
            except (ScoresDiffer, PatternMissing) as error:
                reasons.append(str(error))
            except Exception as error:  # ONNX Runtime's exceptions share no base class
                self._control.check()
                reasons.append(first_line(error)[:200])
            with memory.using():  # on a GPU, no session is destroyed while a CUDA graph is captured
                run = None
        return None, list(dict.fromkeys(reasons))

    def _appended(self, session: Any) -> AppendedCacheRun:
        """The file as it is; with texts alone, or tokens one by one, where it needs that.

        Raises:
            LoadError: it gives a text other scores in parts than as a whole.
        """
        reasons = []
        for together, singly in ((True, False), (True, True), (False, False), (False, True)):
            run = AppendedCacheRun(session, singly)
            try:
                self._check.check(run, together)
            except Exception as error:  # ONNX Runtime's exceptions share no base class
                reasons.append(first_line(error)[:200])
                continue
            self.batched = together
            if singly:
                log.warning("%s: prompts in parts are read token by token: %s", self.path, reasons[0])
            if not together:
                log.warning("%s: texts are not run together: %s", self.path, reasons[0])
            return run
        raise LoadError(
            f"{self.path} cannot continue a text from its keys and values",
            expected="the scores of the whole text",
            got=reasons[-1],
            hint="another export: Optimum's task text-generation-with-past",
        )

    def _shared(self, rewriting: Rewriting, memory: HostMemory = HOST) -> SharedCacheRun:
        if memory.captures and self.context_length == UNLIMITED:
            raise PatternMissing("a CUDA graph needs slots of one size, and no file says how long a text may be")
        model = self._parsed(memory)[0]
        take_branch_with_past(model)
        graph = DecoderGraph(model)
        if rewriting.join_products:
            graph.join_products()
        known = self.context_length <= MOST_POSITIONS
        graph.share_cache(self.context_length if rewriting.rotary and known else 0)
        if rewriting.choose_scores:
            graph.choose_scores()
        run = SharedCacheRun(self._session(graph.serialized(), memory), self.vocab_size, memory)
        if memory.captures and not run.capturable:
            raise PatternMissing("a CUDA graph cannot have a mask, which grows with the texts")
        return run

    def capture(self, slots: CacheSlots, max_graphs: int = 256) -> None:
        """Captures steps of each number of texts as CUDA graphs, where that is asked for.

        Args:
            slots: attached to `run`; they stay as they are.
            max_graphs: the most of them.

        Raises:
            LoadError: there would be more, a step cannot be captured, or gives other scores when it is replayed.
        """
        if not self.run.memory.captures or isinstance(self.run, AppendedCacheRun):
            return
        if slots.rows > max_graphs:
            raise LoadError(
                f"steps of {self.path} cannot be captured as CUDA graphs",
                expected=f"at most {max_graphs} (max_graphs)",
                got=f"{slots.rows}, one for each number of texts",
                hint=f"max_graphs = {slots.rows}, or generation = {{ max_texts = {max_graphs} }}",
            )
        self._check.fill(slots)
        for count in range(1, slots.rows + 1):
            self._control.enter(f"capturing a step of {count} text{'s' * (count > 1)}")
            try:
                self._check.check_captured(self.run, slots, count)
            except Exception as error:  # ONNX Runtime's exceptions share no base class
                self._control.check()
                raise LoadError(
                    f"a step of {count} texts of {self.path} cannot be captured as a CUDA graph",
                    got=first_line(error)[:300],
                    hint="without enable_cuda_graph",
                ) from error

    def _measure_threads(self) -> None:
        """Takes one thread instead of all where it is not slower, as in small models."""
        several, count = self.run, self.threads
        self._control.enter("measuring threads")
        several_s = self._check.step_s(several)
        self.threads = 1
        one: SharedCacheRun | AppendedCacheRun
        if isinstance(several, SharedCacheRun):
            one = self._shared(self.rewriting)
        else:
            one = AppendedCacheRun(self._session(self._file), several.singly)
        if self._check.step_s(one) <= several_s:
            self.run = one
        else:
            self.threads = count

    def _session(self, model: str | bytes, memory: HostMemory = HOST) -> Any:
        ort = onnxruntime()
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        folded = str(self._source.largest_fold)
        options.add_session_config_entry("optimization.constant_folding_max_output_size_in_bytes", folded)
        options.log_severity_level = 4
        # The many small products of a step are over before a sleeping thread wakes. Between two steps the pool sleeps:
        # the event loop and other models need the cores.
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if self._is_bfloat16 and memory is HOST:
            assert isinstance(model, bytes)
            model, weights = cast_weights(model, self.path.parent, self._source.largest_fold)
            values = [ort.OrtValue.ortvalue_from_numpy(value) for value in weights.values()]
            options.add_external_initializers([*weights], values)
        if isinstance(model, bytes):  # weights beside the file are found there
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(self.path.parent)
            )
        # looked at between two steps of the optimizer; ONNX Runtime before 1.22 does not have it
        stop = partial(getattr(options, "set_load_cancellation_flag", bool), True)
        self._control.add_stop(stop)
        # By default it prints an error of CUDA, and goes on with the CPU, also in the middle of a run.
        more = {} if memory is HOST else {"enable_fallback": 0}
        try:
            with nullcontext() if memory is HOST else GATE.loading():
                session = ort.InferenceSession(model, options, providers=memory.providers(), **more)
            memory.keep_for(session)
            return session
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            self._control.check()
            raise LoadError(f"ONNX Runtime refuses {self.path}", got=first_line(error)[:300]) from error
        finally:
            self._control.forget(stop)

    def _cache_shapes(self, session: Any) -> dict[str, CacheShape]:
        inputs = {info.name: info for info in session.get_inputs()}
        pasts = [name for name in inputs if PAST.fullmatch(name)]
        outputs = {info.name for info in session.get_outputs()}
        presents = {name.replace("past_key_values", "present") for name in pasts}
        known = {"input_ids", "attention_mask", "position_ids", "use_cache_branch", *pasts}
        if not pasts or {"input_ids"} - inputs.keys() or {"logits", *presents} - outputs or inputs.keys() - known:
            raise LoadError(
                f"{self.path} is no decoder with a cache",
                expected="input_ids, attention_mask, past_key_values.N.key and .value to logits and present.N...",
                got=f"inputs {', '.join(inputs)}; outputs {', '.join(outputs)}"[:500],
                hint="ox.export.save_decoder, or Optimum's task text-generation-with-past",
            )
        shapes = {}
        for name in pasts:
            shape = list(inputs[name].shape)
            if len(shape) == 4:
                for place, said in zip((1, 3), self._folder.cache_dims, strict=True):
                    shape[place] = shape[place] if isinstance(shape[place], int) else said
            whole = len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[3], int)
            if not whole or inputs[name].type not in TYPES:
                raise LoadError(
                    f"'{name}' of {self.path} is no cache that can be given",
                    expected="float32 or float16 [batch, 8, past, 64]",
                    got=f"{inputs[name].type} {shape}",
                )
            shapes[name] = CacheShape(shape[1], shape[3], TYPES[inputs[name].type])
        return shapes
