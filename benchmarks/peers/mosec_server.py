"""mosec: its batching on, the tensor's bytes in and out, a worker for each core."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import onnxruntime
from mosec import Server, Worker


class Infer(Worker):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        self.shape = [-1, *self.session.get_inputs()[0].shape[1:]]

    def deserialize(self, data: bytes) -> np.ndarray[Any, Any]:
        return np.frombuffer(data, np.float32).reshape(self.shape)

    def serialize(self, data: np.ndarray[Any, Any]) -> bytes:
        return data.tobytes()

    def forward(self, data: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        return list(self.session.run(None, {"x": np.concatenate(data)})[0])


if __name__ == "__main__":
    os.environ["MODEL"] = sys.argv[1]
    workers = int(sys.argv[3])
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", sys.argv[2], "--log-level", "error"]  # mosec reads them itself
    server = Server()
    server.append_worker(Infer, num=workers, max_batch_size=8, max_wait_time=1, route="/infer")
    server.run()
