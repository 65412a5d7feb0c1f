"""PyTriton: its dynamic batcher on without delay, one instance for each core."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

PATH, PORT, THREADS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def instance() -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])

    @batch  # type: ignore[misc]
    def infer(x: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"y": session.run(None, {"x": x})[0]}

    return infer


def main() -> None:
    made = onnxruntime.InferenceSession(PATH, providers=["CPUExecutionProvider"])
    (x,), (y,) = made.get_inputs(), made.get_outputs()
    config = TritonConfig(
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        http_port=PORT,
        grpc_port=PORT + 1,
        metrics_port=PORT + 2,
        log_verbose=0,
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name=Path(PATH).stem,
            infer_func=[instance() for _ in range(THREADS)],
            inputs=[Tensor(name="x", dtype=np.float32, shape=tuple(x.shape[1:]))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=tuple(y.shape[1:]))],
            config=ModelConfig(max_batch_size=8, batcher=DynamicBatcher(max_queue_delay_microseconds=0)),
            strict=False,
        )
        triton.serve()


if __name__ == "__main__":
    main()
