"""A server on grpc.aio as one writes it at first: the protocol's generated messages, one session, no batching."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import numpy as np
import onnxruntime
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc as stubs

PATH, PORT = sys.argv[1], int(sys.argv[2])


class Service(stubs.GRPCInferenceServiceServicer):  # type: ignore[misc]
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        x = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(list(request.inputs[0].shape))
        y = self.session.run(None, {"x": x})[0]
        answer = messages.ModelInferResponse(model_name=request.model_name, id=request.id)
        answer.outputs.add(name="y", datatype="FP32", shape=y.shape)
        answer.raw_output_contents.append(y.tobytes())
        return answer


async def main() -> None:
    server = grpc.aio.server()
    stubs.add_GRPCInferenceServiceServicer_to_server(Service(), server)
    server.add_insecure_port(f"127.0.0.1:{PORT + 1}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
