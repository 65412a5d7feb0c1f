"""Paths of modules that lead to a module with another path: PyTorch's, and those that modules of ox had before."""

from __future__ import annotations

import importlib
import warnings
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# PyTorch's path -> the module that `import` of it gives
PATHS = {
    "ox._dynamo": "ox.compat._dynamo",
    "ox._utils": "ox.compat._utils",
    "ox.accelerator": "ox.compat.accelerator",
    "ox.amp.autocast_mode": "ox.amp",
    "ox.cpu": "ox.compat.cpu",
    "ox.cpu.amp": "ox.compat.cpu.amp",
    "ox.cpu.amp.autocast_mode": "ox.compat.cpu.amp",
    "ox.cpu.amp.grad_scaler": "ox.compat.cpu.amp",
    "ox.cuda.amp.autocast_mode": "ox.cuda.amp",
    "ox.cuda.amp.common": "ox.cuda.amp",
    "ox.cuda.amp.grad_scaler": "ox.cuda.amp",
    "ox.cuda.streams": "ox.cuda",
    "ox.distributed.distributed_c10d": "ox.distributed",
    "ox.distributed.elastic.multiprocessing": "ox.distributed.elastic",
    "ox.distributed.elastic.multiprocessing.errors": "ox.distributed.elastic",
    "ox.distributions.exponential": "ox.distributions",
    "ox.distributions.kl": "ox.distributions",
    "ox.distributions.laplace": "ox.distributions",
    "ox.distributions.log_normal": "ox.distributions",
    "ox.distributions.multivariate_normal": "ox.distributions",
    "ox.distributions.uniform": "ox.distributions",
    "ox.functional": "ox",
    "ox.fx": "ox.compat.fx",
    "ox.hub": "ox.compat.hub",
    "ox.jit": "ox.compat.jit",
    "ox.jit.annotations": "typing",
    "ox.mps": "ox.compat.mps",
    "ox.nn.modules.adaptive": "ox.nn.modules",
    "ox.nn.modules.channelshuffle": "ox.nn.modules",
    "ox.nn.modules.distance": "ox.nn.modules",
    "ox.nn.modules.fold": "ox.nn.modules",
    "ox.nn.modules.lazy": "ox.nn.modules",
    "ox.nn.modules.pixelshuffle": "ox.nn.modules",
    "ox.onnx": "ox.compat.onnx",
    "ox.optim.adamw": "ox.optim",
    "ox.profiler.profiler": "ox.profiler",
    "ox.types": "ox.compat.types",
    "ox.utils.data._utils": "ox.data",
    "ox.utils.data._utils.collate": "ox.data.loading.collate",
    "ox.utils.model_zoo": "ox.compat.model_zoo",
    "ox.utils.tensorboard.writer": "ox.utils.tensorboard",
    "ox.version": "ox.compat.version",
    "ox.vision.datasets.vision": "ox.vision.datasets",
    "ox.vision.ops.boxes": "ox.vision.ops",
    "ox.vision.ops.misc": "ox.vision.ops",
    "ox.xpu": "ox.compat.xpu",
}
# the modules of ox.compat, whose errors name the path that users write
PUBLIC = {
    module: path
    for path, module in PATHS.items()
    if module.startswith("ox.compat.") and module.endswith(f".{path.rpartition('.')[2]}")
}

# the path before a move -> the path now; an import of the first gives a DeprecationWarning that names the second
MOVED = {
    "ox.compiler.backward_node": "ox.compiler.execution.backward_node",
    "ox.compiler.branches": "ox.compiler.recording.control_flow",
    "ox.compiler.call_watch": "ox.compiler.recording.call_watch",
    "ox.compiler.capture": "ox.compiler.recording.capture",
    "ox.compiler.checks": "ox.compiler.recording.side_effects",
    "ox.compiler.closures": "ox.compiler.recording.object_walk",
    "ox.compiler.dynamic_access": "ox.compiler.recording.dynamic_access",
    "ox.compiler.engines": "ox.compiler.execution.engines",
    "ox.compiler.failed_run": "ox.compiler.execution.failed_run",
    "ox.compiler.fresh": "ox.compiler.recording.returned_constants",
    "ox.compiler.gradients": "ox.compiler.recording.gradients",
    "ox.compiler.leftovers": "ox.compiler.recording.escaped_tensors",
    "ox.compiler.optimizer_places": "ox.compiler.recording.optimizer_guards",
    "ox.compiler.parts": "ox.compiler.submodules",
    "ox.compiler.place": "ox.compiler.recording.guard_source",
    "ox.compiler.plan": "ox.compiler.execution.plan",
    "ox.compiler.python_state": "ox.compiler.recording.guards",
    "ox.compiler.results": "ox.compiler.recording.results",
    "ox.compiler.second_order": "ox.compiler.execution.backward_node",
    "ox.compiler.split": "ox.compiler.execution.split",
    "ox.compiler.states": "ox.compiler.recording.states",
    "ox.compiler.trace": "ox.compiler.recording.trace",
    "ox.compiler.undo": "ox.compiler.recording.undo",
    "ox.compiler.unread": "ox.compiler.recording.shape_guards",
    "ox.compiler.walk": "ox.compiler.recording.object_walk",
    "ox.devices.arena": "ox.devices.onnxruntime.arena",
    "ox.devices.captured_output": "ox.devices.onnxruntime.probe",
    "ox.devices.compiled": "ox.devices.cpu_kernels.kernel_table",
    "ox.devices.compiled_attention": "ox.devices.cpu_kernels.attention",
    "ox.devices.compiled_conv": "ox.devices.cpu_kernels.conv",
    "ox.devices.compiled_copy": "ox.devices.cpu_kernels.copy",
    "ox.devices.compiled_dropout": "ox.devices.cpu_kernels.dropout",
    "ox.devices.compiled_matmul": "ox.devices.cpu_kernels.matmul",
    "ox.devices.compiled_norm": "ox.devices.cpu_kernels.norm",
    "ox.devices.compiled_random": "ox.devices.cpu_kernels.random",
    "ox.devices.compiled_recurrent": "ox.devices.cpu_kernels.recurrent",
    "ox.devices.compiled_reduce": "ox.devices.cpu_kernels.reduce",
    "ox.devices.compiled_rows": "ox.devices.cpu_kernels.rowwise",
    "ox.devices.cublas": "ox.devices.gpu.cublas",
    "ox.devices.cuda": "ox.devices.gpu.cupy_device",
    "ox.devices.cuda_attention": "ox.devices.gpu.attention",
    "ox.devices.cuda_batch_norm": "ox.devices.gpu.batch_norm",
    "ox.devices.cuda_best": "ox.devices.gpu.top_k",
    "ox.devices.cuda_conv": "ox.devices.gpu.conv",
    "ox.devices.cuda_denormals": "ox.devices.gpu.denormals",
    "ox.devices.cuda_elements": "ox.devices.gpu.elementwise",
    "ox.devices.cuda_errors": "ox.devices.gpu.sticky_errors",
    "ox.devices.cuda_expression": "ox.devices.gpu.expression",
    "ox.devices.cuda_graph": "ox.devices.gpu.cuda_graph",
    "ox.devices.cuda_index": "ox.devices.gpu.index",
    "ox.devices.cuda_installation": "ox.devices.gpu.installation",
    "ox.devices.cuda_kernels": "ox.devices.gpu.kernels",
    "ox.devices.cuda_memory": "ox.devices.gpu.memory",
    "ox.devices.cuda_operators": "ox.devices.gpu.kernel_table",
    "ox.devices.cuda_pool": "ox.devices.gpu.pooling",
    "ox.devices.cuda_products": "ox.devices.gpu.matmul",
    "ox.devices.cuda_recurrent": "ox.devices.gpu.recurrent",
    "ox.devices.cuda_rows": "ox.devices.gpu.rowwise",
    "ox.devices.cuda_runs": "ox.devices.gpu.segment_copy",
    "ox.devices.cuda_sort": "ox.devices.gpu.sort",
    "ox.devices.cuda_tensors": "ox.devices.gpu.multi_tensor",
    "ox.devices.cuda_windows": "ox.devices.gpu.windows",
    "ox.devices.cudnn": "ox.devices.gpu.cudnn",
    "ox.devices.cudnn_attention": "ox.devices.gpu.cudnn_attention",
    "ox.devices.cudnn_conv": "ox.devices.gpu.cudnn_conv",
    "ox.devices.cudnn_graphs": "ox.devices.gpu.cudnn_graphs",
    "ox.devices.cudnn_libraries": "ox.devices.gpu.cudnn_libraries",
    "ox.devices.cudnn_norm": "ox.devices.gpu.cudnn_norm",
    "ox.devices.cudnn_settings": "ox.devices.gpu.cudnn_settings",
    "ox.devices.device_checks": "ox.devices.gpu.device_checks",
    "ox.devices.device_code": "ox.devices.onnxruntime.device_code",
    "ox.devices.device_list": "ox.devices.gpu.device_list",
    "ox.devices.dispatch_table": "ox.devices.onnxruntime.dispatch_table",
    "ox.devices.ipc_memory": "ox.devices.gpu.ipc_memory",
    "ox.devices.matmul_precision": "ox.devices.gpu.matmul_precision",
    "ox.devices.node_model": "ox.devices.onnxruntime.node_model",
    "ox.devices.node_session": "ox.devices.onnxruntime.node_session",
    "ox.devices.nvml": "ox.devices.gpu.nvml",
    "ox.devices.pinned_memory": "ox.devices.gpu.pinned_memory",
    "ox.devices.probe": "ox.devices.onnxruntime.probe",
    "ox.devices.recorded_memory": "ox.devices.gpu.recorded_memory",
    "ox.devices.row_major": "ox.devices.cpu_kernels.row_major",
    "ox.devices.runtime": "ox.devices.onnxruntime.runtime",
    "ox.devices.skip_flag": "ox.devices.gpu.skip_flag",
    "ox.devices.staged_buffer": "ox.devices.gpu.staged_buffer",
    "ox.devices.thread_handles": "ox.devices.gpu.thread_handles",
}


class Finder:
    """One of Python's finders: an older path gives the module of the newer one."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in PATHS:
            below = any(path.startswith(f"{name}.") for path in PATHS)
            return ModuleSpec(name, _Loader(PATHS[name]), is_package=below)
        return ModuleSpec(name, _MovedLoader(MOVED[name])) if name in MOVED else None


class _Loader(Loader):
    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.target)
        self.own = module.__spec__  # Python gives the module the spec of the older path
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own


class _MovedLoader(_Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} has moved: import {self.target}", DeprecationWarning, stacklevel=2)
        return super().create_module(spec)
