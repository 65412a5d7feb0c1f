"""The manifests for Kubernetes, the Prometheus operator and KServe."""

from __future__ import annotations

import copy
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from rows import rows

from ox.serve import RequestLimits, Server

Check = Callable[[str, Any], list[str]]
FILES = (
    "base/kubernetes.yaml", "servicemonitor.yaml", "kserve.yaml", "keda.yaml", "mpijob.yaml", "overlays/cpu/hpa.yaml",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    document for name in FILES for document in yaml.safe_load_all((ROOT / "deploy" / name).read_text())
]  # fmt: skip
KINDS = {document["kind"]: document for document in DOCUMENTS}


@rows("kind", KINDS)
def test_it_has_the_form_that_its_api_has(kind: str, check: Check) -> None:
    assert check(kind, KINDS[kind]) == []


BROKEN: list[tuple[str, tuple[Any, ...], Any]] = [
    ("Deployment", ("spec", "replicas"), "2"),
    ("Deployment", ("spec", "template", "spec", "containers", 0, "livenessProbe", "httpGet", "port"), 70000),
    ("Deployment", ("spec", "template", "spec", "containers", 0, "args", 4), 8000),  # YAML's number, which is no string
    ("Deployment", ("spec", "template", "spec", "containers", 0, "readynessProbe"), {}),
    ("Deployment", ("spec", "template", "spec", "volumes", 0, "secret"), {"secretName": "two"}),
    ("Service", ("spec", "ports", 0, "name"), "A name"),
    ("PodDisruptionBudget", ("apiVersion",), "policy/v1beta1"),
    ("ServiceMonitor", ("spec", "endpoints", 0, "interval"), "15"),
    ("ClusterServingRuntime", ("spec", "protocolVersions", 0), "v3"),
    ("ClusterServingRuntime", ("spec", "containers", 0, "argv"), []),
    ("HorizontalPodAutoscaler", ("spec", "maxReplicas"), "10"),
    ("HorizontalPodAutoscaler", ("spec", "metrics", 0, "pods", "target", "averageUtilisation"), 8),
    ("ScaledObject", ("spec", "triggers", 0, "metadata", "threshold"), 8),  # KEDA takes strings
    ("ScaledObject", ("spec", "maxReplicas"), 8),
    ("MPIJob", ("spec", "mpiImplementation"), "mpich"),
    ("MPIJob", ("spec", "mpiReplicaSpecs", "Master"), {}),
    ("InferenceService", ("spec", "predictor", "model", "storageUri"), "/models"),
]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(document)
    at = result
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return result


@rows(("kind", "path", "value"), BROKEN, ids=lambda value: str(value)[:40])
def test_a_mistake_is_found(kind: str, path: tuple[Any, ...], value: Any, check: Check) -> None:
    assert check(kind, changed(KINDS[kind], path, value))


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"])
def test_a_field_that_kubernetes_lacks_is_found(kind: str, check: Check) -> None:
    assert check(kind, {**KINDS[kind], "nonsense": 1})
    assert check(kind, changed(KINDS[kind], ("spec", "nonsense"), 1))


def containers() -> list[tuple[str, Any]]:
    return [
        ("Deployment", KINDS["Deployment"]["spec"]["template"]["spec"]["containers"][0]),
        ("ClusterServingRuntime", KINDS["ClusterServingRuntime"]["spec"]["containers"][0]),
    ]


@pytest.mark.parametrize(("kind", "container"), containers(), ids=lambda value: value if isinstance(value, str) else "")
def test_ports_probes_and_arguments_fit(kind: str, container: Any, options: Any, server: Server) -> None:
    parsed = options(container["args"])
    assert parsed["host"] == "0.0.0.0"  # a probe does not come from the pod's own loopback
    (port,) = container["ports"]
    assert parsed["port"] == port["containerPort"]
    probes = [container[name] for name in container if name.endswith("Probe")]
    assert len(probes) >= 2
    for probe in probes:
        assert probe["httpGet"]["port"] in (port["name"], port["containerPort"])
        with urllib.request.urlopen(server.url + probe["httpGet"]["path"]) as reply:
            assert reply.status == 200
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]


def test_the_parts_know_each_other() -> None:
    deployment, service = KINDS["Deployment"]["spec"], KINDS["Service"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert labels == deployment["selector"]["matchLabels"] == service["selector"]
    assert KINDS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    monitor = KINDS["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= KINDS["Service"]["metadata"]["labels"].items()
    (container,) = deployment["template"]["spec"]["containers"]
    names = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= names
    assert {endpoint["port"] for endpoint in monitor["endpoints"]} <= {port["name"] for port in service["ports"]}
    volumes = {volume["name"] for volume in deployment["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert (
        KINDS["InferenceService"]["spec"]["predictor"]["model"]["runtime"]
        == KINDS["ClusterServingRuntime"]["metadata"]["name"]
    )


def test_a_pod_has_time_to_drain() -> None:
    pod = KINDS["Deployment"]["spec"]["template"]["spec"]
    before = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > before + RequestLimits().drain_s


def test_autoscalers_follow_a_metric_that_exists(server: Server) -> None:
    families = {family.name: family for family in text_string_to_metric_families(metrics(server))}
    assert families["ox_queue_depth"].type == "gauge"
    scaled, keda = KINDS["HorizontalPodAutoscaler"]["spec"], KINDS["ScaledObject"]["spec"]
    (metric,) = scaled["metrics"]
    (trigger,) = keda["triggers"]
    assert metric["pods"]["metric"]["name"] == "ox_queue_depth"
    assert re.findall(r"[a-z_]+(?=\{)", trigger["metadata"]["query"]) == ["ox_queue_depth"]
    job = re.search(r'job="(\w+)"', trigger["metadata"]["query"])
    assert job and job[1] == KINDS["Service"]["metadata"]["name"]  # Prometheus' operator names the job by the Service
    for target in (scaled["scaleTargetRef"], keda["scaleTargetRef"]):
        assert target["name"] == KINDS["Deployment"]["metadata"]["name"]
    assert scaled["minReplicas"] > KINDS["PodDisruptionBudget"]["spec"]["minAvailable"]
    assert metric["pods"]["target"]["averageValue"] == trigger["metadata"]["threshold"]


def metrics(server: Server) -> str:
    with urllib.request.urlopen(f"{server.url}/metrics") as reply:
        return str(reply.read().decode())
