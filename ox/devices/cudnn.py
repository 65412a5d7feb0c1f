"""cuDNN through its graph API (nvidia-cudnn-frontend): a handle and its plans for each thread and device, and for CUDA
graphs. A plan is built once for the sizes, layouts and types of a call; memory to work in comes from CuPy's pool.

Nothing is made during the capture of a CUDA graph: cuDNN allocates, loads code and may wait for the device when it
makes a handle or builds a plan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from ox.devices import cuda_state, cudnn_libraries, cudnn_settings
from ox.devices.cuda import cupy
from ox.devices.cudnn_graphs import Graph
from ox.devices.cudnn_settings import Settings
from ox.devices.thread_handles import Handles, ThreadHandles
from ox.dtypes import float32
from ox.errors import DeviceError
from ox.installation import install_command

MOST_PLANS = 4096  # of a handle, beside those of CUDA graphs; when there are more, all are forgotten
ALIGNED = 16  # bytes, to which what cuDNN is given lies: plans are built for it, and refuse other addresses


class NotPreparedError(DeviceError):
    """A capture of a CUDA graph needs a handle or a plan that is not there: it has to end, and `prepare` be called."""

    def __init__(self, what: str, prepare: Callable[[], object]) -> None:
        hint = "run the same work once before the capture, in the same thread"
        super().__init__(f"{what} cannot be made during the capture of a CUDA graph", hint=hint)
        self.prepare = prepare


@cache
def library() -> Any:
    """The module `cudnn`; None where it is not installed, or does not find cuDNN."""
    try:
        import cudnn
    except ImportError:
        return None
    try:
        # it looks for these among the loaded libraries, and ends the process where it does not find them
        cupy().cuda.device.get_cublas_handle()
        cupy().cuda.nvrtc.getVersion()
        cudnn.backend_version()
    except Exception as error:
        _warn("cuDNN does not load", error)
        return None
    if conflict := cudnn_libraries.conflict():
        warnings.warn(f"{conflict}, which do not work together: {cudnn_libraries.HINT}", RuntimeWarning, stacklevel=2)
    return cudnn


def is_on() -> bool:
    """Whether cuDNN is there, and not switched off."""
    return cudnn_settings.current().enabled and library() is not None


def aligned(x: Any) -> Any:
    """The array, or a copy in its order of one that begins elsewhere: a part of a batch or of a flat buffer."""
    return x.copy(order="K") if x.data.ptr % ALIGNED else x


def run(graph: Graph, arrays: Sequence[Any]) -> bool:
    """Run a graph on `aligned` arrays of the current device, in the order of its tensors, on the current stream. False
    where cuDNN is missing, switched off or has no way to do it; then nothing has been done."""
    found = _here() if is_on() else None
    plan = None if found is None else found.plan(graph, cudnn_settings.current())
    if found is None or plan is None:
        return False
    found.execute(plan, [array.data.ptr for array in arrays])
    return True


def takes(graph: Graph) -> bool:
    """Whether `run` would run it. Builds its plan."""
    found = _here() if is_on() else None
    return found is not None and found.plan(graph, cudnn_settings.current()) is not None


def handles() -> Handles[Handle | None]:
    """Those for CUDA graphs, by device; None where cuDNN makes none."""
    return Handles(_new_handle)


def _here() -> Handle | None:
    """That of CUDA graphs in their work, else of this thread, on the current device; None where cuDNN makes none."""
    by_device: Handles[Handle | None] | None = getattr(cuda_state.module(None), "cudnn_handles", None)
    if by_device is None:
        by_device = _handles.of_thread()
    device = cupy().cuda.Device().id
    if device not in by_device and _is_capturing():
        raise NotPreparedError("a handle of cuDNN", partial(by_device.__getitem__, device))
    return by_device[device]


def _new_handle() -> Handle | None:
    try:
        return Handle(library())
    except RuntimeError as error:
        _warn("cuDNN does not start", error)
        return None


_handles = ThreadHandles(_new_handle)


def _is_capturing() -> bool:
    return bool(cupy().cuda.get_current_stream().is_capturing())


class Plan:
    """How cuDNN computes a graph.

    Args:
        where: the keywords of `cudnn.pygraph` for a device: `handle`, or `device_property` and `sm_version`.

    Raises:
        cudnn.cudnnGraphNotSupportedError: cuDNN has no way to do it, under these settings.
        RuntimeError: another error of cuDNN.
    """

    def __init__(self, cudnn: Any, graph: Graph, settings: Settings, **where: Any) -> None:
        float_ = cudnn.data_type.FLOAT
        self.key = graph, settings
        self.graph = cudnn.pygraph(
            io_data_type=float_, intermediate_data_type=float_, compute_data_type=float_, **where
        )
        self.tensors = graph.build(cudnn, self.graph)
        self.graph.validate()
        self.graph.build_operation_graph()
        self.graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        self.graph.deselect_numeric_notes(_refused(cudnn, graph, settings))
        self.graph.check_support()
        self.graph.build_plans()
        self.workspace: int = self.graph.get_workspace_size()
        self.index: int | None = None  # of the fastest way, once they were timed


def _refused(cudnn: Any, graph: Graph, settings: Settings) -> list[Any]:
    """What no way may have. Tensor cores round factors of float32 to TF32."""
    notes = cudnn.numerical_note
    refused = [notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
    if settings.deterministic:
        refused.append(notes.NONDETERMINISTIC)
    if graph.dtype == float32 and not settings.allow_tf32:
        refused.append(notes.TENSOR_CORE)
    return refused


class Handle:
    """A handle of cuDNN on the current device, for one thread, and its plans.

    Raises:
        RuntimeError: cuDNN makes none.
    """

    def __init__(self, cudnn: Any) -> None:
        self._cudnn, self._handle = cudnn, cudnn.create_handle()
        self._plans: dict[tuple[Graph, Settings], Plan | None] = {}
        # never forgotten: CUDA graphs have kernels of these, and a capture that begins again needs them again
        self._of_graphs: set[tuple[Graph, Settings]] = set()

    def plan(self, graph: Graph, settings: Settings) -> Plan | None:
        """The plan of a graph; None where cuDNN has no way to do it."""
        key = (graph, settings)
        if key not in self._plans:
            if _is_capturing():
                raise NotPreparedError("a plan of cuDNN", partial(self._prepare, graph, settings))
            self._build(graph, settings)
        return self._plans[key]

    def _prepare(self, graph: Graph, settings: Settings) -> None:
        self._build(graph, settings)
        self._of_graphs.add((graph, settings))

    def _build(self, graph: Graph, settings: Settings) -> None:
        if len(self._plans) - len(self._of_graphs) >= MOST_PLANS:
            self._plans = {key: self._plans[key] for key in self._of_graphs}
        plan = None
        try:
            with suppress(self._cudnn.cudnnGraphNotSupportedError):
                plan = Plan(self._cudnn, graph, settings, handle=self._handle)
        except RuntimeError as error:  # of the library or the driver
            _warn("cuDNN builds no plan", error)
        self._plans[graph, settings] = plan

    def execute(self, plan: Plan, addresses: Sequence[int]) -> None:
        """Run a plan on the current stream. With `benchmark`, the first run times the ways; not in the capture of a
        CUDA graph, which cannot wait."""
        settings, stream = cudnn_settings.current(), cupy().cuda.get_current_stream()
        self._cudnn.set_stream(handle=self._handle, stream=stream.ptr)
        memory = dict(zip(plan.tensors, addresses, strict=True))
        if stream.is_capturing():
            self._of_graphs.add(plan.key)
        elif settings.benchmark and plan.index is None:
            plan.index, plan.workspace = self._fastest(plan, memory, settings.benchmark_limit)
        workspace = cupy().empty(plan.workspace, np.uint8)
        if plan.index is None:
            plan.graph.execute(memory, workspace.data.ptr, handle=self._handle)
        else:
            plan.graph.execute_plan_at_index(memory, workspace.data.ptr, plan.index, handle=self._handle)

    def _fastest(self, plan: Plan, memory: dict[Any, int], limit: int) -> tuple[int | None, int]:
        """The number of the fastest way and its workspace, after one run of each that starts it and one that counts."""
        graph = plan.graph
        best: tuple[float, int | None, int] = (float("inf"), None, plan.workspace)
        count = graph.get_execution_plan_count()
        for index in range(min(count, limit) if limit else count):
            try:
                graph.build_plan_at_index(index)
                size = graph.get_workspace_size_plan_at_index(index)
                workspace, begin, end = cupy().empty(size, np.uint8), cupy().cuda.Event(), cupy().cuda.Event()
                for _ in range(2):
                    begin.record()
                    graph.execute_plan_at_index(memory, workspace.data.ptr, index, handle=self._handle)
                    end.record()
                end.synchronize()
            except (RuntimeError, ValueError, self._cudnn.cudnnGraphNotSupportedError):
                # this device does not have this way, or the settings refuse it
                continue
            best = min(best, (cupy().cuda.get_elapsed_time(begin, end), index, size), key=lambda each: each[0])
        return best[1], best[2]


def _warn(what: str, error: Exception) -> None:
    """Once a process."""
    if not _warned:
        _warned.append(what)
        conflict = cudnn_libraries.conflict()
        why = f"{error} ({conflict}: {cudnn_libraries.HINT})" if conflict else error
        warnings.warn(f"{what}, and ox's own kernels run: {why}", RuntimeWarning, stacklevel=2)


_warned: list[str] = []


def state() -> str:
    """cuDNN for convolutions, attention and norms in a few words: its version, or what is missing."""
    if library() is None:
        missing = find_spec("cudnn") is None
        return f"no cuDNN frontend: {install_command('cudnn')}" if missing else "cuDNN does not load"
    return f"cuDNN {cudnn_libraries.version_text(int(library().backend_version()))}"
