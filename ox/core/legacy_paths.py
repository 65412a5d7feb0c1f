"""Module paths of PyTorch that scripts import from, and the ox modules with the same names."""

from __future__ import annotations

import importlib
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# a path -> the module that `import` of it gives
PATHS = {
    "ox.amp.autocast_mode": "ox.amp",
    "ox.cpu.amp.autocast_mode": "ox.cpu.amp",
    "ox.cpu.amp.grad_scaler": "ox.cpu.amp",
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
    "ox.jit.annotations": "typing",
    "ox.nn.modules.adaptive": "ox.nn.modules",
    "ox.nn.modules.channelshuffle": "ox.nn.modules",
    "ox.nn.modules.distance": "ox.nn.modules",
    "ox.nn.modules.fold": "ox.nn.modules",
    "ox.nn.modules.lazy": "ox.nn.modules",
    "ox.nn.modules.pixelshuffle": "ox.nn.modules",
    "ox.optim.adamw": "ox.optim",
    "ox.profiler.profiler": "ox.profiler",
    "ox.utils.data._utils": "ox.data",
    "ox.utils.data._utils.collate": "ox.data.loading.collate",
    "ox.utils.tensorboard.writer": "ox.utils.tensorboard",
    "ox.vision.ops.boxes": "ox.vision.ops",
    "ox.vision.ops.misc": "ox.vision.ops",
    "ox.vision.datasets.vision": "ox.vision.datasets",
}


class Finder:
    """One of Python's finders: an older path gives the module of the newer one."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in PATHS:
            return None
        return ModuleSpec(name, _Loader(PATHS[name]), is_package=True)


class _Loader(Loader):
    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.target)
        self.own = module.__spec__  # Python gives the module the spec of the older path
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own
