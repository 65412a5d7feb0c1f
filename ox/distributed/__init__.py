"""Several processes that compute together: `torch.distributed`, over MPI on CPUs and NCCL on GPUs.

    ox launch --nproc 2 -- train.py          # or: mpiexec -n 2 python train.py

    import ox.distributed as dist

    dist.init_process_group()
    x = ox.ones(3) * dist.get_rank()
    dist.all_reduce(x)                       # in place, on all ranks
    dist.destroy_process_group()

See docs/distributed.md.
"""

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
from ox.distributed.group import ProcessGroup
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

__all__ = [
    "GroupMember",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "abort",
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_initialized",
    "new_group",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
]
