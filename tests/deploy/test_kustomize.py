"""The overlays of deploy/overlays, built as Kustomize builds them, and held against Kubernetes' schemas.

What is used of Kustomize is little: resources, images, and patches that are merged. `build` does these, so that CI
needs no binary; where kubectl is installed, its own result must be the same.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Check = Callable[[str, Any], list[str]]
OVERLAYS = ("cpu", "gpu")


def build(folder: Path) -> list[Any]:
    """The documents of a folder with a kustomization.yaml."""
    file = yaml.safe_load((folder / "kustomization.yaml").read_text())
    documents: list[Any] = []
    for name in file["resources"]:
        path = folder / name
        documents += build(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for entry in file.get("patches", []):
        patch = yaml.safe_load((folder / entry["path"]).read_text())
        (at,) = [place for place, document in enumerate(documents) if key(document) == key(patch)]
        documents[at] = merged(documents[at], patch)
    for image in file.get("images", []):
        for document in documents:
            for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
                name, _, _ = container["image"].partition(":")
                if name == image["name"]:
                    container["image"] = f"{name}:{image['newTag']}"
    return documents


def key(document: Any) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def merged(base: Any, patch: Any) -> Any:
    """A strategic merge: null removes a field, containers are matched by name, other lists are replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        both = {name: merged(base.get(name), value) for name, value in patch.items() if value is not None}
        return {**{name: value for name, value in base.items() if name not in patch}, **both}
    if isinstance(base, list) and isinstance(patch, list) and patch and isinstance(patch[0], dict):
        patches = {each["name"]: each for each in patch}
        return [merged(each, patches.get(each["name"], {})) for each in base]
    return patch


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, deploy: Path) -> Path:
    return deploy / "overlays" / request.param


def test_the_files_have_the_form_of_kustomize(overlay: Path, check: Check) -> None:
    for folder in (overlay, overlay.parents[1] / "base"):
        assert check("Kustomization", yaml.safe_load((folder / "kustomization.yaml").read_text())) == []


def test_what_is_built_has_the_form_of_kubernetes(overlay: Path, check: Check) -> None:
    documents = build(overlay)
    assert {"Deployment", "Service", "PodDisruptionBudget"} <= {document["kind"] for document in documents}
    for document in documents:
        assert check(document["kind"], document) == []


def test_kubectl_builds_the_same(overlay: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here")
    done = subprocess.run([kubectl, "kustomize", str(overlay)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(yaml.safe_load_all(done.stdout), key=key) == sorted(build(overlay), key=key)


def deployment(deploy: Path, overlay: str) -> Any:
    return {document["kind"]: document for document in build(deploy / "overlays" / overlay)}["Deployment"]["spec"]


def test_an_autoscaler_sets_the_number_of_pods(deploy: Path) -> None:
    kinds = {document["kind"] for document in build(deploy / "overlays" / "cpu")}
    assert "HorizontalPodAutoscaler" in kinds and "replicas" not in deployment(deploy, "cpu")


def test_a_gpu_for_each_pod(deploy: Path, options: Callable[[list[str]], dict[str, Any]]) -> None:
    (container,) = deployment(deploy, "gpu")["template"]["spec"]["containers"]
    (plain,) = deployment(deploy, "cpu")["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert options(container["args"]) == {**options(plain["args"]), "device": "cuda"}
    assert container["image"] != plain["image"]
    assert {name for name in plain if container[name] != plain[name]} == {"args", "resources", "image"}
