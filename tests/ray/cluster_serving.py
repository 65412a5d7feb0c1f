"""Serving on a Ray cluster of two nodes, one of which is removed under load. Run by test_serving.py in a folder.

Prints a line of JSON: how many requests were answered at once, after how many tries, and how many wrongly.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import ray
import tritonclient.grpc as triton
from cluster_training import HEAD, NODE
from ray import serve
from ray.cluster_utils import Cluster
from tritonclient.utils import InferenceServerException
from waiting import wait_until

import ox.ray
from ox.ray.serve_run import SERVICER

CLIENTS, TRIES = 8, 200
INPUT = {"name": "x", "shape": [1, 2], "datatype": "FP32"}


def main(model: str, port: int, grpc_port: int) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={**HEAD, "num_cpus": 1})
    node = cluster.add_node(**NODE)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        grpc = {"port": grpc_port, "grpc_servicer_functions": [SERVICER]}
        http = {"host": "127.0.0.1", "port": port, "location": "HeadOnly"}
        serve.start(http_options=http, grpc_options=grpc)
        serve.run(ox.ray.deployment(model, replicas=2))
        before, counts = running(), Counter[str]()
        by_grpc = infer_by_grpc(grpc_port)
        stop = threading.Event()
        clients = [threading.Thread(target=client, args=(port, number, stop, counts)) for number in range(CLIENTS)]
        for each in clients:
            each.start()
        wait_until(lambda: counts["right"] > 200)
        cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: running() < before)
        seen = counts["right"]
        wait_until(lambda: counts["right"] > seen + 200)
        stop.set()
        for each in clients:
            each.join()
        print(json.dumps({"replicas": [before, running()], "grpc": by_grpc, **counts}), flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()


def running() -> int:
    """The replicas that run."""
    (application,) = serve.status().applications.values()
    (deployment,) = application.deployments.values()
    return deployment.replica_states.get("RUNNING", 0)


def client(port: int, number: int, stop: threading.Event, counts: Counter[str]) -> None:
    """Sends requests one after the other, each until it is answered, and counts."""
    value = 0.0
    while not stop.is_set():
        value += 1
        answer, tries = None, 0
        while answer is None and tries < TRIES:
            tries += 1
            try:
                answer = infer(port, [float(number), value])
            except (OSError, http.client.HTTPException):
                stop.wait(0.1)
        what = "never answered" if answer is None else "right" if answer == [-float(number), -value] else "wrong"
        counts[what] += 1
        counts["answered at a later try"] += tries > 1


def infer_by_grpc(port: int) -> list[object]:
    """The answer of a request by Triton's client, and the error of one for a model that there is not."""
    client = triton.InferenceServerClient(f"127.0.0.1:{port}")
    x = triton.InferInput("x", [1, 2], "FP32")
    x.set_data_from_numpy(np.array([[1, -2]], np.float32))
    answer = client.infer("negative", [x]).as_numpy("y")
    try:
        client.infer("other", [x])
    except InferenceServerException as error:
        return [answer.tolist(), error.status(), error.message()]
    return [answer.tolist()]


def infer(port: int, data: list[float]) -> list[float]:
    """One request. Raises OSError or HTTPException where it is not answered with status 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        body = json.dumps({"inputs": [{**INPUT, "data": data}]})
        connection.request("POST", "/v2/models/negative/infer", body, {"content-type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise OSError(f"status {reply.status}: {text[:200]!r}")
        return list(json.loads(text)["outputs"][0]["data"])
    finally:
        connection.close()


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()), int(sys.argv[2]), int(sys.argv[3]))
