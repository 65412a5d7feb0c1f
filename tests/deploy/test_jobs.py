"""What starts ox under other schedulers: the MPI operator's job, a Slurm script, a SkyPilot task."""

from __future__ import annotations

import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ox.serve import Server
from ox_cli.train import train

Check = Callable[[str, Any], list[str]]
# options of sbatch, of its manual for Slurm 24.05, and what their values look like
SBATCH = {
    "job-name": r"[\w-]+",
    "nodes": r"\d+(-\d+)?",
    "ntasks-per-node": r"\d+",
    "cpus-per-task": r"\d+",
    "mem-per-cpu": r"\d+[KMGT]?",
    "time": r"(\d+-)?\d+:\d\d:\d\d",
    "signal": r"([BR]+:)?[A-Z]+\d*(@\d+)?",
    "output": r"[\w./%-]+",
}


@pytest.fixture(scope="module")
def trains(parser_of: Callable[..., Any]) -> Callable[[list[str]], dict[str, Any]]:
    """What `ox train` makes of arguments."""
    found: Callable[[list[str]], dict[str, Any]] = parser_of(train)
    return found


def test_an_mpi_job_has_a_rank_for_each_slot(deploy: Path, trains: Callable[[list[str]], dict[str, Any]]) -> None:
    job = yaml.safe_load((deploy / "mpijob.yaml").read_text())
    spec, name = job["spec"], job["metadata"]["name"]
    assert spec["mpiImplementation"] == "MPICH"  # the one of the extra `mpi`
    parts = {name: part["template"]["spec"]["containers"][0] for name, part in spec["mpiReplicaSpecs"].items()}
    program, flag, ranks, ox, command, *arguments = parts["Launcher"]["command"]
    assert (program, flag, ox, command) == ("mpiexec", "-n", "ox", "train")
    assert int(ranks) == spec["mpiReplicaSpecs"]["Worker"]["replicas"] * spec["slotsPerWorker"]
    assert trains(arguments)["out"] == Path(parts["Launcher"]["volumeMounts"][0]["mountPath"])
    meeting = {item["name"]: item["value"] for item in parts["Launcher"]["env"]}
    assert meeting["MASTER_ADDR"] == f"{name}-worker-0.{name}" and meeting["MASTER_PORT"].isdigit()
    assert parts["Launcher"]["image"] == parts["Worker"]["image"]
    assert parts["Launcher"]["volumeMounts"] == parts["Worker"]["volumeMounts"]


def sbatch_problems(text: str) -> list[str]:
    """What sbatch would refuse in a script."""
    if not text.startswith("#!"):
        return ["no interpreter"]
    found = []
    for line in re.findall(r"^#SBATCH (.*)$", text, re.M):
        match = re.fullmatch(r"--([a-z-]+)=(\S+)", line)
        if not match or not re.fullmatch(SBATCH.get(match[1], "(?!)"), match[2]):
            found.append(line)
    commands = text.partition("\n\n")[2]  # among them, options are comments
    return found + re.findall(r"^#SBATCH .*$", commands, re.M)


def test_a_slurm_script(deploy: Path, trains: Callable[[list[str]], dict[str, Any]]) -> None:
    path = deploy / "train.sbatch"
    text = path.read_text()
    assert sbatch_problems(text) == []
    subprocess.run(["bash", "-n", str(path)], check=True)
    (line,) = re.findall(r"^srun .*$", text, re.M)
    words = shlex.split(line)
    assert words[1] == "--mpi=pmi2"  # what MPICH's wheel speaks
    assert trains(words[words.index("train") + 1 :])["out"] == Path("runs")


@pytest.mark.parametrize(
    ("old", "new"),
    [("--nodes=2", "--nodes=two"), ("--time=02:00:00", "--time=2 hours"), ("--nodes", "--node"), ("#!", "#")],
)
def test_a_mistake_in_a_slurm_script_is_found(deploy: Path, old: str, new: str) -> None:
    text = (deploy / "train.sbatch").read_text()
    assert old in text and sbatch_problems(text.replace(old, new, 1))


@pytest.fixture
def task(deploy: Path) -> Any:
    return yaml.safe_load((deploy / "skypilot.yaml").read_text())


def sky_problems(task: Any, check: Check) -> list[str]:
    return check("Task", task) + check("Resources", task["resources"]) + check("Serve", task["service"])


def test_a_skypilot_task(
    task: Any, check: Check, options: Callable[[list[str]], dict[str, Any]], server: Server
) -> None:
    assert sky_problems(task, check) == []
    subprocess.run(["bash", "-n", "-c", task["setup"] + task["run"]], check=True)
    line = task["run"].splitlines()[-1].replace("$MODEL", "s3://bucket/models")
    program, command, *arguments = shlex.split(line)
    assert program.endswith("/ox") and command == "serve"
    assert '"ox-onnx[cpu,s3]"' in task["setup"]
    parsed = options(arguments)
    assert str(parsed["keys"]) in {path.removeprefix("~/") for path in task["file_mounts"]}
    assert parsed["models"] == ["s3://bucket/models"] and parsed["port"] == task["resources"]["ports"]
    with urllib.request.urlopen(server.url + task["service"]["readiness_probe"]["path"]) as reply:
        assert reply.status == 200


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("resources", "cpu", 4), ("resources", "ports", {}), ("service", "readiness", "/"), ("service", "replicas", "2")],
)
def test_a_mistake_in_a_task_is_found(part: str, name: str, value: Any, task: Any, check: Check) -> None:
    task[part][name] = value
    assert sky_problems(task, check)
