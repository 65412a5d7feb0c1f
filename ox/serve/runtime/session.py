"""ONNX Runtime behind the server: its API is used only here. Sessions, providers, errors."""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

from ox.devices import cuda as cuda_devices
from ox.devices.gpu.installation import RUNTIME, first_problem
from ox.devices.machine import threads as usable_threads
from ox.devices.onnxruntime.arena import USE_ARENA
from ox.devices.onnxruntime.probe import CPU, CUDA, TENSORRT
from ox.devices.onnxruntime.runtime import onnxruntime
from ox.errors import DeviceError, LoadError
from ox.graph.contract import Array
from ox.serve.batching.padding import Padding
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.config.placement import Placement
from ox.serve.runtime import providers
from ox.serve.runtime.buffer import bindable
from ox.serve.runtime.buffer_claim import BufferClaim, Claim
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.cuda_provider import DeviceControl, provider_options, run_options
from ox.serve.runtime.device_buffers import DeviceInstance
from ox.serve.runtime.device_memory import DeviceMemory, free_pools
from ox.serve.runtime.instance import ControlledRun, Feed, Instance
from ox.serve.runtime.io_binding import BufferedInstance
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.memory import RunMemory
from ox.serve.runtime.providers import check_limit, not_loaded, warn_of_cpu, warn_of_two_cudnns
from ox.serve.runtime.runners import bfloat16_runner, runner, text_and_bfloat16_runner
from ox.serve.runtime.runtime_error import is_of_device, reason, refused_file
from ox.serve.runtime.session_tensors import defaulted_inputs, tensor_info
from ox.serve.runtime.shared_weights import Adjust, SharedWeights
from ox.serve.runtime.source import Source, for_runtime

log = logging.getLogger("ox.serve")

Run = Callable[[Feed], list[Array]]
# The run option by which an arena gives back what is free when the run has ended.
SHRINK = "memory.enable_memory_arena_shrinkage"


class Engine:
    """A model in ONNX Runtime, able to run on several threads at once.

    Args:
        source: the checked file.
        device: "cpu", "cuda" or "tensorrt" (that or nothing), "auto" (CUDA where it works), or GPUs by number; see
            `Placement`.
        instances: how many threads will run it; None: one for each core, or for each GPU of `device`.
        threads: how many threads one run uses.
        memory: bytes that all runs of the process may take together; 0 for half of what is available.
        control: stops the creation of sessions and runs without their own control; it receives the progress.
        claim: keeps room on the GPUs, given bytes by their numbers, and returns what gives it back; None where no model
            needs to.
        cuda: options of the CUDA provider, which are refused where the model runs on the CPU.

    `load_s` is how long ONNX Runtime took for it, by the clock of `control`, which is `now`.

    Raises:
        DeviceError: ONNX Runtime is missing, or the requested device does not work, or has no `cuda` options.
        LoadError: ONNX Runtime refuses the file.
    """

    def __init__(
        self,
        source: Source,
        device: str,
        instances: int | None,
        threads: int,
        memory: int = 0,
        control: LoadControl | None = None,
        cuda: CudaOptions | None = None,
        claim: Claim | None = None,
    ) -> None:
        self.placement = placement = Placement.parse(device)
        runtime = onnxruntime()
        self.providers = providers.choose(runtime, device)
        self._cuda = cuda or CudaOptions()
        self.captures = self._cuda.enable_cuda_graph
        self._weights: SharedWeights | None = None
        self.memory = RunMemory(runtime, memory)
        self._runtime, self._source, self.threads = runtime, source, threads
        self.loading = control or LoadControl()
        self.now = now = self.loading.clock.now
        started = now()
        self._planned = self._gpu_sessions(instances)
        self.buffers = BufferClaim(source.path, self._planned if self.providers[0] != CPU else {}, claim)
        if claim is not None and self.buffers.gpus:
            weakref.finalize(self.buffers, claim(self._needs(self._planned)))  # which may outlive the sessions
        sessions: list[Any] = []
        try:
            sessions = self._make_sessions(instances)
            problem = sessions[0].get_providers()[0]
        except CudaFailure as failure:
            problem = str(failure)
            if placement.kind != "auto":
                raise self._not_loaded(problem) from failure
        if problem != self.providers[0]:
            if placement.kind != "auto":
                raise self._not_loaded(problem)
            warn_of_cpu(self._not_loaded(problem))
            with GATE.using():  # memory of the GPU is freed
                sessions.clear()
                numbers, self._weights = self.shares_on, None
                free_pools(numbers)
            self.buffers = BufferClaim(source.path, {}, None)
            self.providers = [CPU]
            sessions = self._make_sessions(instances)
        self.load_s = now() - started
        self.provider: str = sessions[0].get_providers()[0]
        if self.provider == CPU and self._cuda != CudaOptions():
            raise providers.ignored_options(source.path, self.provider)
        self.inputs = tuple(tensor_info(source, entry, "input") for entry in sessions[0].get_inputs())
        self.defaulted = defaulted_inputs(source, sessions[0])
        self.outputs = tuple(tensor_info(source, entry, "output") for entry in sessions[0].get_outputs())
        self.buffers.tensors = (*self.inputs, *self.outputs)
        names = [info.name for info in self.outputs]
        make = runner
        if any(info.dtype == "BF16" for info in (*self.inputs, *self.outputs)):
            text = any(info.dtype == "BYTES" for info in self.inputs)
            make = text_and_bfloat16_runner if text else bfloat16_runner
        if make is text_and_bfloat16_runner and any(info.dtype == "BF16" for info in self.outputs):
            raise LoadError(
                f"{source.path} cannot be served: ONNX Runtime takes text only with outputs of NumPy types",
                expected="another type than BF16 for outputs beside inputs of text",
                hint="a Cast to FLOAT as the last operator",
            )
        self._sessions, self._runner = sessions, partial(make, runtime, names=names)
        self._control = partial(run_options, runtime)
        self._device_control = partial(DeviceControl, self._control)
        self._usual: Any = self._control() if self.device == "cpu" else self._device_control()
        self._stop = partial(setattr, self._usual, "terminate", True)
        self.loading.add_stop(self._stop)
        self._runs = [self._make_run(index) for index in range(len(sessions))]
        if self.captures and not self._has_streams:
            what = f"{source.path} cannot be captured as CUDA graphs"
            raise LoadError(what, expected="CuPy", got="no CuPy that works", hint="without enable_cuda_graph")

    def _not_loaded(self, problem: str) -> DeviceError:
        return not_loaded(self.providers[0], problem, first_problem(RUNTIME))

    def _make_run(self, index: int) -> ControlledRun:
        memory = self.memory if self.device == "cpu" else self._device_memory(index)
        run: ControlledRun = self._runner(session=self._sessions[index], memory=memory)
        return run if self.device == "cpu" else partial(_run_on_gpu, run)

    def _device_memory(self, index: int) -> DeviceMemory:
        return DeviceMemory(self._cuda.gpu_mem_limit, self.placement.number(index))

    def _make_sessions(self, instances: int | None) -> list[Any]:
        """The sessions that instances are known to need.

        One session serves many threads, and holds the weights once. But its pool is shared too, so instances of more
        than one thread each get sessions, and pools, of their own.
        """
        count, threads = 1, self.threads
        if self.providers[0] != CPU:
            self._weights = self._share_weights(self._gpu_sessions(instances))
        elif threads > 1:
            count = instances or usable_threads()
        self.loading.enter(f"making {count} session{'s' * (count > 1)} of {threads} thread{'s' * (threads > 1)}")
        return [self._make_session(index) for index in range(count)]

    def _gpu_sessions(self, instances: int | None) -> Counter[int]:
        """The sessions on each GPU, by its number."""
        return Counter(map(self.placement.number, range(instances or max(1, len(self.placement.numbers)))))

    def _needs(self, sessions: Counter[int]) -> dict[int, int]:
        """The most bytes that sessions may take, by the number of the GPU."""
        limit = self._cuda.gpu_mem_limit
        what = f"{self._source.path} may take any amount of a GPU's memory, and this server's models may not"
        if self.providers[0] == TENSORRT:
            hint = 'device = "cuda" and a gpu_mem_limit; or a server without --limit gpu_memory'
            raise LoadError(what, expected="a provider that follows gpu_mem_limit", got="TensorRT", hint=hint)
        if limit is None:
            hint = 'cuda = {gpu_mem_limit = "4GiB"}; or --cuda gpu_mem_limit=4GiB for all models'
            raise LoadError(what, expected="gpu_mem_limit, for --limit gpu_memory", got="no gpu_mem_limit", hint=hint)
        return {
            number: count * limit + (self._source.weights if count > 1 else 0) for number, count in sessions.items()
        }

    def _share_weights(self, sessions: Counter[int]) -> SharedWeights | None:
        """What sessions of one GPU share; None where each GPU has one session, or there is no CuPy. TensorRT copies
        weights."""
        if max(sessions.values()) < 2 or self.providers[0] == TENSORRT or not cuda_devices.available():
            return None
        self.loading.enter("finding the weights that sessions can share")
        try:
            return SharedWeights(self._source.path, lambda adjust: self._make_session(0, adjust))
        except (LoadError, OSError) as error:  # of the file, which the next session says, or of the disk
            self.loading.check()
            why = error.one_line() if isinstance(error, LoadError) else error
            log.warning("sessions of %s do not share weights: %s", self._source.path, why)
            return None

    def _make_session(self, index: int, adjust: Adjust | None = None) -> Any:
        """A session whose packed weights leave the runs their memory.

        ONNX Runtime packs weights into the runs' arena without looking at its limit, and counts no more beyond it.
        """
        providers: list[Any] = [*self.providers]
        memory = stream = None
        if providers[0] != CPU:
            memory, number = self._device_memory(index), self.placement.number(index)
            if adjust is None and providers[0] == CUDA:
                check_limit(self._source, self._cuda.gpu_mem_limit, self._weights.nbytes if self._weights else 0)
            with GATE.using():
                stream = cuda_devices.stream(device=f"cuda:{number}") if cuda_devices.available() else None
            options = provider_options(self._cuda, None if stream is None else stream.ptr, number)
            providers = [(CUDA, options), CPU]
            if self.providers[0] == TENSORRT:
                own = {name: options[name] for name in ("device_id", "user_compute_stream") if name in options}
                providers.insert(0, (TENSORRT, own))
            if self._weights is not None:
                adjust = partial(self._weights.add_to, number=number, runtime=self._runtime)
        make = partial(_session, self._runtime, self._source, providers, self.threads, self.loading, memory, adjust)
        session = make()
        session.ox_weights = self._weights  # kept as long as it reads them
        if stream is not None:
            session.ox_stream = stream
        if providers[0] != CPU:  # ONNX Runtime's own object uses the stream until it is destroyed
            GATE.end_with(session, session._sess, stream, self._weights)
        if providers[0] != CPU or not self.memory.is_nearly_full():
            return session
        del session
        return make(packed=False)

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""
        return "cpu" if self.provider == CPU else "cuda"

    @property
    def uses_tf32(self) -> bool:
        """Whether products of float32 may round factors to TF32, with the digits of float16; always in TensorRT."""
        asked = self.device == "cuda" and bool(self._cuda.use_tf32)
        return self.provider == TENSORRT or (asked and "FP32" in {x.dtype for x in (*self.inputs, *self.outputs)})

    @property
    def place(self) -> str:
        """The device, with the numbers of GPUs that were asked for."""
        kind = "tensorrt" if self.provider == TENSORRT else self.device
        return kind if kind == "cpu" else str(replace(self.placement, kind=kind))

    def run(self, feed: Feed) -> list[Array]:
        """One run, on the first session, to try the model.

        Raises:
            ServeError: it fails. Exception: why the load was ended.
        """
        rows = max((len(array) for array in feed.values() if array.ndim), default=1)
        self.loading.enter(f"trial run of {f'a batch of {rows} samples' if rows > 1 else 'one sample'}")
        return self._runs[0](feed, self._usual if self.device == "cpu" else self._usual.options())

    def end_load(self) -> None:
        """The model is complete: nothing that ends its load can end a run from now on.

        Raises:
            Exception: why the load was ended, if it was.
        """
        self.loading.forget(self._stop)
        self.loading.check()  # after it: an end that came before may have reached the runs
        if self.device != "cpu":
            warn_of_two_cudnns()

    @property
    def bindable(self) -> bool:
        """Whether instances can have buffers of their own, where the first size alone varies."""
        return (self.device == "cpu" or self._has_streams) and bindable((*self.inputs, *self.outputs))

    def bindable_with(self, padding: Padding) -> bool:
        """Whether instances on a GPU can have buffers of their own, where batches are padded."""
        return self.device == "cuda" and self._has_streams and bindable((*self.inputs, *self.outputs), padding.dims)

    @property
    def shares_on(self) -> tuple[int, ...]:
        """The GPUs on which sessions share weights, in CuPy's pool."""
        return () if self._weights is None else self._weights.numbers

    @property
    def _has_streams(self) -> bool:
        """Whether the sessions run on streams of CuPy."""
        return hasattr(self._sessions[0], "ox_stream")

    def release_memory(self, row: Feed, index: int = 0) -> None:
        """Gives memory of a session's arena on a GPU, that no run needs now, back to the device, by a run.

        Raises:
            ServeError: the run fails.
        """
        options = self._control()
        options.add_run_config_entry(SHRINK, f"gpu:{self.placement.number(index)}")
        self._runs[index](row, options)

    def instance(self, index: int, bound: int = 0, captures: bool = True, padding: Padding | None = None) -> Instance:
        """An instance for one more thread; sessions are assigned in turn. `bound` is the rows of its own buffers,
        `captures` whether its runs are captured, where the options have it so, and `padding` how batches are padded.

        On a GPU each instance has a session, and a stream, of its own. Those of several GPUs are taken in turn.
        """
        if self.device == "cuda":
            while index >= len(self._sessions):
                self.loading.enter(f"making session {len(self._sessions) + 1}")
                self._sessions.append(self._make_session(len(self._sessions)))
                self._runs.append(self._make_run(len(self._runs)))
        index %= len(self._runs)
        run, session = self._runs[index], self._sessions[index]
        ends = self.now, session, self.inputs, self.outputs, bound
        if self.device == "cuda" and bound:
            more = session.ox_stream, captures and self.captures, padding, self.buffers.hold_graphs
            instance: Instance = DeviceInstance(run, self._device_control, *ends, *more)
        elif bound:
            instance = BufferedInstance(run, self._control, *ends)
        else:
            instance = Instance(run, self._control, self.now)
        instance.usual = self._usual if bound or self.device == "cpu" else self._usual.options()
        return instance


def _run_on_gpu(run: ControlledRun, feed: Feed, control: Any) -> list[Array]:
    with GATE.using():
        return run(feed, control)


class CudaFailure(Exception):
    """CUDA failed while a session was made: not for the model's sake."""


def _session(
    runtime: ModuleType,
    source: Source,
    providers: Sequence[str | tuple[str, dict[str, str]]],
    threads: int,
    control: LoadControl,
    device_memory: DeviceMemory | None,
    adjust: Adjust | None = None,
    packed: bool = True,
) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; the log would repeat them
    options.add_session_config_entry(*USE_ARENA)
    options.add_session_config_entry("session.disable_prepacking", str(int(not packed)))
    options.add_session_config_entry("optimization.constant_folding_max_output_size_in_bytes", str(source.largest_fold))
    # A spinning pool takes the cores that the event loop and the other instances need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Looked at between two steps of the optimizer; ONNX Runtime before 1.22 does not have it.
    stop = partial(getattr(options, "set_load_cancellation_flag", bool), True)
    control.add_stop(stop)
    # By default it prints an error of CUDA, and goes on with the CPU, also in the middle of a run.
    more = {} if device_memory is None else {"enable_fallback": 0}
    try:
        if adjust is not None:
            adjust(options)
        with nullcontext() if device_memory is None else GATE.loading():
            return runtime.InferenceSession(for_runtime(source, options), options, providers=providers, **more)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        control.check()
        if device_memory is not None and device_memory.is_missing(error):
            what = f"the GPU has no memory for {source.path}"
            got = f"{reason(str(error))}; {device_memory.holders()}"
            others = device_memory.others()
            expected, hint = device_memory.allowed(), device_memory.hint()
            raise LoadError(what, expected=expected, got=got, hint=hint, extra=others) from error
        if device_memory is not None and is_of_device(error):
            raise CudaFailure(reason(str(error))) from error
        raise refused_file(source.path, source.opset, runtime.__version__, str(error)) from error
    finally:
        control.forget(stop)
