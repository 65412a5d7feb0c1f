"""A server on ONNX Runtime's CUDA provider beside the CPU provider: `python -m gpu_run.cuda_serving FILE`.

On the stand-in for a GPU the CPU provider computes in CUDA's place, so that this program itself is tried.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_run import device, parts, served_memory, served_tensors, served_texts

PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "results": served_tensors.results,
    "texts in float16": served_texts.in_float16,
    "CUDA graphs": served_tensors.cuda_graphs,
    "lengths": served_tensors.lengths,
    "texts by CUDA graphs": served_texts.by_cuda_graphs,
    "texts in bfloat16": served_texts.in_bfloat16,
    "texts of long prompts": served_texts.of_long_prompts,
    "texts in float32": served_texts.in_float32,
    "shared weights": served_memory.shared_weights,
    "batch sizes": served_tensors.batch_sizes,
    "float16": served_tensors.float16,
    "TF32": served_tensors.tf32,
    "memory limit": served_memory.memory_limit,
    "request beyond a limit": served_memory.request_beyond_the_limit,
    "three instances": served_tensors.three_instances,
    "loads": served_memory.loads,
    "TensorRT": served_tensors.tensorrt,  # which builds engines for minutes
}


def main() -> int:
    if parts.ONLY in sys.argv:
        device.prepare()
        if device.stand_in():
            import cuda_session

            cuda_session.install()
        return parts.answer(PARTS)
    result = parts.run("gpu_run.cuda_serving", [*PARTS], Path(sys.argv[1]).with_suffix(".log"))
    device.write({"failed": result["failed"], "served": result["found"]} if result else {})
    return 0 if result and not result["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
