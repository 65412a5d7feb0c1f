"""KubeRay's RayJob and RayService, and Kubeflow's TrainJob: ox and Ray read their commands and configurations."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ox.distributed import init, rendezvous
from ox_cli.train import train

Check = Callable[[str, Any], list[str]]
FILES = {"rayjob.yaml": ["RayJob"], "rayservice.yaml": ["RayService"], "trainjob.yaml": ["TrainingRuntime", "TrainJob"]}


def documents(deploy: Path, file: str) -> list[Any]:
    return list(yaml.safe_load_all((deploy / file).read_text()))


@pytest.fixture(scope="module")
def trains(parser_of: Callable[..., Any]) -> Callable[[list[str]], dict[str, Any]]:
    """What `ox train` makes of arguments."""
    found: Callable[[list[str]], dict[str, Any]] = parser_of(train)
    return found


@pytest.mark.parametrize("file", FILES)
def test_schemas(file: str, deploy: Path, check: Check) -> None:
    found = documents(deploy, file)
    assert [each["kind"] for each in found] == FILES[file]
    for each in found:
        assert check(each["kind"], each) == []
        each["spec"]["replica"] = 1
        assert check(each["kind"], each)


def test_a_ray_job(deploy: Path, trains: Callable[[list[str]], dict[str, Any]]) -> None:
    """A worker for each pod, with all its CPUs; the runs are in the volume of all pods."""
    (job,) = documents(deploy, "rayjob.yaml")
    ox, command, *arguments = shlex.split(job["spec"]["entrypoint"])
    parsed = trains(arguments)
    assert (ox, command, parsed["ray"]) == ("ox", "train", "auto")
    cluster = job["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    assert parsed["nproc"] == group["replicas"] == group["minReplicas"]
    assert parsed["threads"] == int(container["resources"]["limits"]["cpu"])
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    assert {str(parsed["out"])} == {each["volumeMounts"][0]["mountPath"] for each in (container, head)}
    assert container["image"] == head["image"]


def test_a_ray_service(deploy: Path, model: Path) -> None:
    """Ray's own schema takes the configuration, and its application is one of ox."""
    schema = pytest.importorskip("ray.serve.schema", reason='Ray is not installed: pip install "ox-onnx[ray]"')
    (service,) = documents(deploy, "rayservice.yaml")
    config = schema.ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
    (application,) = config.applications
    assert application.import_path == "ox.ray.serving:application" and application.route_prefix == "/"
    from ox.ray.serve_run import SETTINGS
    from ox.ray.serving import application as build

    cluster = service["spec"]["rayClusterConfig"]
    (group,) = cluster["workerGroupSpecs"]
    (head,), (worker,) = (each["template"]["spec"]["containers"] for each in (cluster["headGroupSpec"], group))
    assert application.args["model"] == worker["volumeMounts"][0]["mountPath"]
    made = build({**application.args, "model": str(model)})._bound_deployment
    scaling = made._deployment_config.autoscaling_config
    assert [scaling.min_replicas, scaling.max_replicas] == application.args["replicas"]
    threads = application.args["threads"]
    assert made.ray_actor_options["num_cpus"] == threads
    assert scaling.max_replicas * threads <= group["maxReplicas"] * int(worker["resources"]["limits"]["cpu"])
    for each in (head, worker):
        assert {pair["name"]: pair["value"] for pair in each["env"]} == SETTINGS


def test_a_train_job(deploy: Path, trains: Callable[[list[str]], dict[str, Any]]) -> None:
    """Its command makes ranks of what Kubeflow Trainer sets for torchrun."""
    runtime, job = documents(deploy, "trainjob.yaml")
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    trainer = job["spec"]["trainer"]
    (line,) = trainer["args"]
    exports, _, command = line.partition("; exec ox train ")
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    assert trains(shlex.split(command))["out"] == Path(container["volumeMounts"][0]["mountPath"])
    kubeflow = {
        "PET_NODE_RANK": "1",
        "PET_NNODES": "2",
        "PET_MASTER_ADDR": "ox-node-0-0.ox",
        "PET_MASTER_PORT": "29400",
    }
    env = {"PATH": os.environ["PATH"], **kubeflow}
    out = subprocess.run([*trainer["command"], f"{exports}; env"], env=env, capture_output=True, text=True, check=True)
    variables = dict(each.split("=", 1) for each in out.stdout.splitlines())
    with pytest.MonkeyPatch.context() as patch:
        for name in [
            name for name in os.environ if name.startswith(("PMI", "SLURM", "OMPI", "RANK", "WORLD", "LOCAL_"))
        ]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        here = init.launch()
    assert (here.by, here.rank, here.size, here.local_rank) == ("torchrun", 1, trainer["numNodes"], 0)
    assert rendezvous.address(variables, here) == ("ox-node-0-0.ox", 29400)
