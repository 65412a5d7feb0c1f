"""``python -m ox.distributed.connection_check``: a rank of the program with which `ox doctor` tries a launch."""

from __future__ import annotations

from ox import distributed as dist
from ox.functions.creation import ones

if __name__ == "__main__":
    dist.init_process_group(timeout=30)
    x = ones(1)
    dist.all_reduce(x)
    print(f"sum {x.item():g}", flush=True)
    dist.destroy_process_group()
