"""The model of tritonserver's Python backend: joins the requests that the batcher gives it, runs them once."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils  # lies beside the backend


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = f"{args['model_repository']}/{args['model_version']}/model.onnx"
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def execute(self, requests: list[Any]) -> list[Any]:
        rows = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        y = self.session.run(None, {"x": np.concatenate(rows) if len(rows) > 1 else rows[0]})[0]
        answers, at = [], 0
        for row in rows:
            part = pb_utils.Tensor("y", y[at : at + len(row)])
            answers.append(pb_utils.InferenceResponse(output_tensors=[part]))
            at += len(row)
        return answers
