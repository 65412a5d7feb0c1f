"""Models that read texts on a GPU: runs are filled up to whole lengths, which have buffers and CUDA graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_session import CudaSession

from ox.serve import ModelConfig, Server

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

TEXTS = ["In the beginning", "And God said, Let there be light", "Selah", "The LORD is my shepherd; I shall not want"]


@pytest.mark.parametrize("captures", [False, True])
def test_texts(sentences: Path, vector: Any, connect: Any, captures: bool) -> None:
    options = ModelConfig("cuda", max_rows=4, cuda={"enable_cuda_graph": captures})
    with Server([sentences], options=options) as server, connect(server) as client:
        assert ("9 CUDA graphs (batch sizes 1, 2, 4; length 8, 16, 24)" in server.models[0].describe()) is captures
        made = CudaSession.made[0]
        graphs, count = set(made.graphs), len(made.graphs)
        for texts in (TEXTS, TEXTS[:1], TEXTS[2:]):
            entry = {"name": "text", "shape": [len(texts), 1], "datatype": "BYTES", "data": texts}
            status, _, reply = client.ask(
                "POST", "/v2/models/sentences/infer", json.dumps({"inputs": [entry]}).encode()
            )
            assert status == 200
            got = np.array(json.loads(reply)["outputs"][0]["data"], np.float32).reshape(len(texts), -1)
            assert np.allclose(got, [vector(text) for text in texts], atol=1e-5)
        assert len(made.graphs) > count  # runs with buffers
        assert set(made.graphs) == graphs if captures else graphs == {"-1"}
