"""KServe's client of inference, in both protocols."""

from __future__ import annotations

import numpy as np
from calls import main, refused, works
from httpx import HTTPStatusError
from kserve import InferInput, InferRequest
from kserve.inference_client import InferenceRESTClient, RESTConfig

ROW = [0.5, -1.0, 2.0, 0.0]


@works("`infer` in V1")
async def predict(url: str) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v1"))
    answer = await client.infer(url, {"instances": [ROW, ROW]}, model_name="scores")
    assert answer["predictions"] == [ROW, ROW]
    await client.close()


@works("`infer`, `is_server_ready`, `is_server_live`, `is_model_ready` in V2")
async def infer(url: str) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_ready(url) and await client.is_server_live(url)
    assert await client.is_model_ready(url, "scores")
    tensor = InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([ROW], np.float32))
    answer = await client.infer(url, InferRequest("scores", [tensor]), model_name="scores")
    assert answer.outputs[0].as_numpy().tolist() == [ROW]
    await client.close()


@refused("`is_model_ready` in V1", "404: the path is one of OpenAI's API")
async def ready(url: str) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v1"))
    try:
        await client.is_model_ready(url, "scores")
    except HTTPStatusError as error:
        assert "404" in str(error) and "inference with tensors" in str(error)
    else:
        raise AssertionError("it was answered")
    finally:
        await client.close()


if __name__ == "__main__":
    main(globals())
