"""Several processes that compute together: `torch.distributed`, over MPI on CPUs and NCCL on GPUs.

    ox launch --nproc 2 -- train.py          # or: mpiexec -n 2 python train.py

    import ox.distributed as dist

    dist.init_process_group()
    x = ox.ones(3) * dist.get_rank()
    dist.all_reduce(x)                       # in place, on all ranks
    dist.destroy_process_group()

See docs/distributed.md.
"""

from ox.core.lazy import lazy_modules
from ox.distributed.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from ox.distributed.grad_bucket import GradBucket
from ox.distributed.init import (
    is_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    record_early_exit,
)
from ox.distributed.objects import all_gather_object, broadcast_object_list, gather_object, scatter_object_list
from ox.distributed.point_to_point import P2POp, batch_isend_irecv, irecv, isend, monitored_barrier, recv, send
from ox.distributed.process_group import ProcessGroup
from ox.distributed.reduce_op import ReduceOp
from ox.distributed.work import Work
from ox.distributed.world import (
    GroupMember,
    abort,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)
from ox.distributed.world import GroupMember as group

__all__ = [
    "GradBucket",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "abort",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "isend",
    "monitored_barrier",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
]

__getattr__, __dir__ = lazy_modules(__name__, ("algorithms", "elastic", "optim"))

record_early_exit()
