"""A plain session of ONNX Runtime on Ray Serve: what one writes without ox. Answers `ox bench --no-binary`."""

# Without `from __future__ import annotations`: FastAPI reads the annotations of methods.
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI
from ray import serve

app = FastAPI()


@serve.deployment(name="onnxruntime", max_ongoing_requests=1024, ray_actor_options={"num_cpus": 1})
@serve.ingress(app)
class Model:
    def __init__(self, path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        (self.input,), (self.output,) = self.session.get_inputs(), self.session.get_outputs()

    @app.get("/v2/models/{name}")
    def metadata(self, name: str) -> dict[str, Any]:
        def tensor(end: Any) -> dict[str, Any]:
            return {"name": end.name, "datatype": "FP32", "shape": [-1, *end.shape[1:]]}

        return {"name": name, "versions": ["1"], "platform": "onnx", "inputs": [tensor(self.input)],
                "outputs": [tensor(self.output)]}  # fmt: skip

    @app.post("/v2/models/{name}/infer")
    def infer(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        (given,) = body["inputs"]
        x = np.array(given["data"], np.float32).reshape(given["shape"])
        (y,) = self.session.run([self.output.name], {self.input.name: x})
        output = {"name": self.output.name, "datatype": "FP32", "shape": list(y.shape), "data": y.ravel().tolist()}
        return {"model_name": name, "outputs": [output]}
