"""The backend of Ray Train whose workers are ranks of `ox.distributed`."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig

from ox.devices import machine
from ox.distributed import frames
from ox.distributed.ports import free_port

OTHER_LAUNCHERS = ("PMI_", "PMIX_", "OMPI_", "TORCHELASTIC_")  # Ray itself may have been started by one of them


@dataclass
class OxConfig(BackendConfig):  # type: ignore[misc]
    """Settings of the process group. As `ray.train.torch.TorchConfig`, which is PyTorch's.

    Args:
        backend: as in `ox.distributed.init_process_group`: None is NCCL on GPUs, and MPI on CPUs.
        timeout_s: the longest wait of any operation, in seconds; None: 2 minutes for the start, then 30 minutes.

    Attributes:
        command: the words of the command that made these settings, which the config.toml of a run names.
    """

    backend: str | None = None
    timeout_s: float | None = None
    command: list[str] = field(default_factory=lambda: list(sys.argv), init=False, repr=False)

    @property
    def backend_cls(self) -> type[OxBackend]:
        return OxBackend

    @property
    def train_func_context(self) -> Any:
        return self._process_group

    def to_dict(self) -> dict[str, Any]:
        """The settings that Ray's dashboard shows."""
        return {**vars(self)}

    def _process_group(self) -> AbstractContextManager[None]:
        return process_group(self)


class OxBackend(Backend):  # type: ignore[misc]
    """Tells each worker its rank and where rank 0 is. After a failure, Ray starts new processes and calls it anew."""

    share_cuda_visible_devices = True  # LOCAL_RANK is a number among the GPUs of the machine

    def on_start(self, worker_group: Any, backend_config: OxConfig) -> None:
        addresses = worker_group.execute(ray.util.get_node_ip_address)
        host = "127.0.0.1" if len(set(addresses)) == 1 else addresses[0]  # on one machine, nobody else can connect
        shared = {
            "MASTER_ADDR": host,
            "MASTER_PORT": str(worker_group.execute_single(0, free_port)),
            "WORLD_SIZE": str(len(addresses)),
            frames.TOKEN: secrets.token_hex(16),
        }
        calls = []
        for rank, worker in enumerate(worker_group.get_workers()):
            here = worker.distributed_context
            own = {"RANK": rank, "LOCAL_RANK": here.local_rank, "LOCAL_WORLD_SIZE": here.local_world_size}
            own["OX_LOCAL_PROCESSES"] = here.local_world_size  # they share the memory of the machine
            variables = shared | {name: str(value) for name, value in own.items()}
            threads = max(1, int(worker.resources.get("CPU", 1)))
            calls.append(worker_group.execute_single_async(rank, _prepare, variables, threads, backend_config.command))
        ray.get(calls)


def _prepare(variables: dict[str, str], threads: int, command: list[str]) -> None:
    machine.use(threads)
    sys.argv[:] = command
    for name in [name for name in os.environ if name.startswith(OTHER_LAUNCHERS)]:
        del os.environ[name]
    os.environ.update(variables)


@contextmanager
def process_group(config: OxConfig) -> Iterator[None]:
    """The process group around a training function, in the thread that runs it. Ray ends the processes of a group in
    which one failed, so only a group that has succeeded is left in order."""
    if "RANK" not in os.environ:  # ScalingConfig(num_workers=0): in the process of the user
        yield
        return
    from ox import distributed as dist
    from ox.distributed import mpi

    dist.init_process_group(config.backend, timeout=config.timeout_s)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
    if mpi.started():
        mpi.end()
