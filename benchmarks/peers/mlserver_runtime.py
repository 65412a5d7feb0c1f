"""MLServer's runtime for an ONNX file: NumPy codec in and out; named in the settings of mlserver_server.py."""

from __future__ import annotations

import os
from typing import Any

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Onnx(MLModel):  # type: ignore[misc]
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x: Any = NumpyCodec.decode_input(payload.inputs[0])
        y = self.session.run(None, {"x": x})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])
