"""Training on a Ray cluster of two nodes, one of which is removed in mid-epoch. Run by test_cluster.py in a folder.

Prints a line of JSON for each run.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ray
from loops import elastic_loop, trainer_loop
from ray.cluster_utils import Cluster
from ray.train import FailureConfig, RunConfig, ScalingConfig
from waiting import wait_until

from ox.ray import OxTrainer

HERE = Path.cwd()
NODE = {"num_cpus": 1, "resources": {"worker": 1}, "object_store_memory": 100 << 20}
HEAD = {
    **NODE,
    "num_cpus": 2,  # one for the controller
    "include_dashboard": False,
    # a node counts as dead after 4 seconds without an answer, not after 15
    "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 8},
}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    node = cluster.add_node(**NODE)
    ray.init(address=cluster.address, log_to_driver=True)
    try:
        train(cluster, node, "same", trainer_loop, 2, replace=True)
        train(cluster, cluster.list_all_nodes()[-1], "fewer", elastic_loop, (1, 2), replace=False)
    finally:
        ray.shutdown()
        cluster.shutdown()


def train(cluster: Cluster, node: object, name: str, loop: object, workers: object, replace: bool) -> None:
    """Trains; when the loop has touched the file NAME.hangs, the node is removed, and where asked for another comes."""
    marker = HERE / f"{name}.hangs"
    trainer = OxTrainer(
        loop,
        train_loop_config={"marker": str(marker)},
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1, "worker": 1}),
        run_config=RunConfig(
            name=name, storage_path=str(HERE / "storage"), failure_config=FailureConfig(max_failures=3)
        ),
    )
    with ThreadPoolExecutor() as pool:  # Cluster adds nodes in the main thread only
        fit = pool.submit(trainer.fit)
        wait_until(lambda: marker.exists() or fit.done())
        cluster.remove_node(node, allow_graceful=False)
        if replace:
            cluster.add_node(**NODE)
        result = fit.result()
    result.checkpoint.to_directory(HERE / name)
    print(json.dumps({"name": name, "metrics": result.metrics}, default=str), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
