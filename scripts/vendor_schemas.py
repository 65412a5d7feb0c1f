"""Writes tests/deploy/vendored: the schemas that projects publish, compact and strict.

    pip install --no-deps --target FOLDER kubernetes-validate kserve skypilot
    git clone https://github.com/OWNER/NAME FOLDER/repositories/NAME      # of each in CUSTOM_RESOURCES
    python scripts/vendor_schemas.py FOLDER

Of SkyPilot, its module of schemas is imported. Descriptions are left out, and what a schema does not list is forbidden:
a field that an API does not know is a mistake in a manifest.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import yaml

OUT = Path(__file__).resolve().parents[1] / "tests" / "deploy" / "vendored"
KUBERNETES = {
    "Deployment": "apps.v1.Deployment",
    "Service": "core.v1.Service",
    "PodDisruptionBudget": "policy.v1.PodDisruptionBudget",
    "HorizontalPodAutoscaler": "autoscaling.v2.HorizontalPodAutoscaler",
}
CUSTOM_RESOURCES = {  # project, version, and its files of CustomResourceDefinitions
    "ray-project/kuberay": (
        "v1.7.0",
        "ray-operator/config/crd/bases/ray.io_rayjobs.yaml",
        "ray-operator/config/crd/bases/ray.io_rayservices.yaml",
    ),
    "kubeflow/trainer": (
        "v2.3.0",
        "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
    ),
    "kubeflow/mpi-operator": ("v0.8.0", "deploy/v2beta1/mpi-operator.yaml"),
    "kedacore/keda": ("v2.20.2", "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "prometheus-operator/prometheus-operator": (
        "v0.93.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
}
POD, METADATA = "io.k8s.api.core.v1.PodSpec", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
NOISE = {"description", "title", "default", "example", "examples", "format"}
Schemas = dict[str, Any]


def kubernetes(folder: Path) -> Schemas:
    """Of kinds that Kubernetes itself has, and of all that they refer to."""
    roots = {kind: {"$ref": f"#/$defs/io.k8s.api.{name}"} for kind, name in KUBERNETES.items()}
    return _reachable({**_all_kubernetes(folder), **roots}, roots)


def _all_kubernetes(folder: Path) -> Schemas:
    newest = max((folder / "kubernetes_validate" / "kubernetes-json-schema").glob("*-strict"), key=_version)
    text = (newest / "_definitions.json").read_text().replace("_definitions.json#", "#")
    defs = {name: _clean(schema) for name, schema in json.loads(text)["$defs"].items()}
    for schema in defs.values():
        schema.get("properties", {}).pop("status", None)
    return defs


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def kserve(folder: Path) -> Schemas:
    """From the classes of KServe's client, read as text; what they share with Kubernetes comes from there."""
    defs: Schemas = {}
    for path in (folder / "kserve" / "models").glob("v1*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                defs[node.name] = _kserve_class(node, path.read_text())
    everything = {**_all_kubernetes(folder), **defs}
    core = {name.rpartition(".")[2]: name for name in everything if ".api.core.v1." in name}
    core["ObjectMeta"] = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    for name in set(_references(defs)) - set(defs):
        kind = name.removeprefix("V1")
        everything[name] = {"$ref": f"#/$defs/{core[kind]}"} if kind in core else {}
    for kind, name in (("ClusterServingRuntime", "V1alpha1"), ("InferenceService", "V1beta1")):
        everything[kind] = {"$ref": f"#/$defs/{name}{kind}"}
    found = _reachable(everything, ("ClusterServingRuntime", "InferenceService"))
    shared = kubernetes(folder)
    return {name: schema for name, schema in found.items() if name not in shared}


def _kserve_class(node: ast.ClassDef, text: str) -> Schemas:
    tables = {
        target.id: ast.literal_eval(each.value)
        for each in node.body
        if isinstance(each, ast.Assign) and isinstance(target := each.targets[0], ast.Name)
    }
    if "openapi_types" not in tables:
        return {}
    names = tables["attribute_map"]
    properties = {names[name]: _kserve_type(kind) for name, kind in tables["openapi_types"].items()}
    properties.pop("status", None)
    required = sorted({names[name] for name in re.findall(r"client_side_validation and (\w+) is None", text)})
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _kserve_type(kind: str) -> Schemas:
    if match := re.fullmatch(r"list\[(.+)\]", kind):
        return {"type": "array", "items": _kserve_type(match[1])}
    if match := re.fullmatch(r"dict\(str, (.+)\)", kind):
        return {"type": "object", "additionalProperties": _kserve_type(match[1])}
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    return {"$ref": f"#/$defs/{kind}"} if kind.startswith("V1") else {}


def custom_resources(folder: Path) -> Schemas:
    """Of kinds that operators add to Kubernetes. The copies of the schema of a pod in them are that of Kubernetes."""
    found: Schemas = {}
    for project, (version, *paths) in CUSTOM_RESOURCES.items():
        for path in paths:
            words = ["git", "-C", project.rpartition("/")[2], "show", f"{version}:{path}"]
            read = subprocess.run(words, check=True, capture_output=True, text=True, cwd=folder / "repositories")
            for document in yaml.load_all(read.stdout, yaml.CSafeLoader):
                if document["kind"] == "CustomResourceDefinition":
                    found[document["spec"]["names"]["kind"]] = _custom_resource(document["spec"])
    return found


def _custom_resource(definition: Schemas) -> Schemas:
    versions = [each for each in definition["versions"] if each["storage"]]
    schema = _shared_with_kubernetes(_clean(versions[0]["schema"]["openAPIV3Schema"]))
    schema["properties"].pop("status", None)
    schema["properties"] |= {
        "apiVersion": {"const": f"{definition['group']}/{versions[0]['name']}"},
        "kind": {"const": definition["names"]["kind"]},
        "metadata": {"$ref": f"#/$defs/{METADATA}"},
    }
    schema["required"] = sorted({*schema.get("required", ()), "apiVersion", "kind", "metadata", "spec"})
    return schema


def _shared_with_kubernetes(schema: Any) -> Any:
    if isinstance(schema, list):
        return [*map(_shared_with_kubernetes, schema)]
    if not isinstance(schema, dict):
        return schema
    if {"containers", "initContainers", "nodeSelector"} <= set(schema.get("properties", ())):
        return {"$ref": f"#/$defs/{POD}"}
    return {name: _shared_with_kubernetes(each) for name, each in schema.items()}


def skypilot(folder: Path) -> Schemas:
    """Of a task file, its resources and its service; SkyPilot checks them one after the other. Stand-ins take the
    places of what would import the whole of SkyPilot."""
    _stand_in("sky", folder / "sky", __version__="0")
    _stand_in("sky.skylet", folder / "sky" / "skylet")
    waits = type("AutostopWaitFor", (), {"supported_modes": staticmethod(list)})
    sys.modules["sky.skylet"].autostop_lib = _stand_in("sky.skylet.autostop_lib", AutostopWaitFor=waits)  # type: ignore[attr-defined]
    policies, placer = SimpleNamespace(LB_POLICIES={}), SimpleNamespace(SPOT_PLACERS={})
    _stand_in("sky.serve", load_balancing_policies=policies, spot_placer=placer)
    from sky.utils import schemas

    schemas._task_config_schema = dict  # the schema of a user's own configuration
    read = {
        "Task": schemas.get_task_schema,
        "Resources": schemas.get_resources_schema,
        "Serve": schemas.get_service_schema,
    }
    return {name: _clean(schema()) for name, schema in read.items()}


def _stand_in(name: str, folder: Path | None = None, **members: Any) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = [str(folder)] if folder else []
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def _clean(schema: Any, names: bool = False) -> Any:
    """Without prose, and strict; `names`: the keys are names of fields."""
    if isinstance(schema, list):
        return [_clean(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if names:
        return {name: _clean(each) for name, each in schema.items()}
    kept = {
        name: _clean(each, name in ("properties", "$defs", "definitions"))
        for name, each in schema.items()
        if name not in NOISE and not name.startswith("x-kubernetes")
    }
    if "properties" in kept and not schema.get("x-kubernetes-preserve-unknown-fields"):
        kept.setdefault("additionalProperties", False)
    return kept


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def _reachable(defs: Schemas, roots: Iterable[str]) -> Schemas:
    found: Schemas = {}
    ahead = list(roots)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found[name] = defs[name]
            ahead += _references(defs[name])
    return found


PROJECTS = {
    "kubernetes": (kubernetes, "kubernetes-validate"),
    "kserve": (kserve, "kserve"),
    "skypilot": (skypilot, "skypilot"),
    "custom_resources": (custom_resources, ""),
}


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    sys.path.append(str(folder))
    versions = {each.name.replace("_", "-"): each.version for each in distributions(path=[str(folder)])}
    OUT.mkdir(exist_ok=True)
    for name, (read, package) in PROJECTS.items():
        lines = [f'"{key}": {json.dumps(schema, sort_keys=True)}' for key, schema in sorted(read(folder).items())]
        projects = ", ".join(f"{project} {version}" for project, (version, *_) in CUSTOM_RESOURCES.items())
        origin = f"{package} {versions[package]} on PyPI" if package else f"{projects} on GitHub"
        source = f"{origin}, Apache-2.0; by scripts/vendor_schemas.py"
        head = f'{{"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": "{source}", "$defs": {{'
        (OUT / f"{name}.json").write_text("\n".join([head, ",\n".join(lines), "}}"]) + "\n")


if __name__ == "__main__":
    main()
