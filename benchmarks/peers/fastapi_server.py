"""FastAPI as one writes it at first: the tensor's bytes in and out, no batching; a process for each core."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request, Response


def application() -> FastAPI:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
    shape: list[Any] = [-1, *session.get_inputs()[0].shape[1:]]
    app = FastAPI()

    async def infer(request: Request) -> Response:
        x = np.frombuffer(await request.body(), np.float32).reshape(shape)
        return Response(session.run(None, {"x": x})[0].tobytes(), media_type="application/octet-stream")

    app.post("/infer")(infer)
    return app


if __name__ == "__main__":
    os.environ["MODEL"] = sys.argv[1]
    uvicorn.run(
        f"{Path(__file__).stem}:application",
        factory=True,
        host="127.0.0.1",
        port=int(sys.argv[2]),
        workers=int(sys.argv[3]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
