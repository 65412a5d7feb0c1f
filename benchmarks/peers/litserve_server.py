"""LitServe: its batching on, arrays as JSON lists (`x`) or, shorter, as base64 (`b64`).

It looks at the annotations itself, so they are no strings here.
"""

import base64
import sys
from typing import Any

import litserve
import numpy as np
import onnxruntime

PATH, PORT, THREADS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Api(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])
        self.shape = self.session.get_inputs()[0].shape[1:]

    def decode_request(self, request: dict) -> np.ndarray[Any, Any]:
        if "b64" in request:
            row = np.frombuffer(base64.b64decode(request["b64"]), np.float32)
        else:
            row = np.asarray(request["x"], np.float32)
        return row.reshape(self.shape)

    def batch(self, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        return np.stack(inputs)

    def predict(self, batch: np.ndarray[Any, Any]) -> Any:
        return self.session.run(None, {"x": batch})[0]

    def unbatch(self, output: Any) -> list[Any]:
        return list(output)

    def encode_response(self, output: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"y": output.tolist()}


if __name__ == "__main__":
    api = Api(max_batch_size=8, batch_timeout=0.001)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=THREADS, fast_queue=True)
    server.run(port=PORT, host="127.0.0.1", num_api_servers=1, generate_client_file=False, log_level="error")
