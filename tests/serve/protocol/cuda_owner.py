"""A client that owns memory on a GPU: prints its handle, and its contents when it is told to; ends with its input.

Arguments: the bytes of the allocation, of which the first are the float32 numbers 0, 1, 2 ...
"""

from __future__ import annotations

import sys

if "--host-cuda" in sys.argv:  # without a device
    import host_cuda

    host_cuda.install()
import cupy
import numpy as np

size = int(sys.argv[1])
memory = cupy.cuda.Memory(size)  # of cudaMalloc, not of the pool: a handle is that of a whole allocation
numbers = cupy.ndarray((size // 4,), np.float32, cupy.cuda.MemoryPointer(memory, 0))
numbers.set(np.arange(len(numbers), dtype=np.float32))
cupy.cuda.Stream.null.synchronize()
print(cupy.cuda.runtime.ipcGetMemHandle(memory.ptr).hex(), flush=True)
for line in sys.stdin:
    count = int(line)
    print(" ".join(map(str, numbers[:count].get().tolist())), flush=True)
