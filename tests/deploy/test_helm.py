"""The chart in deploy/helm, rendered, and held against deploy/base and Kubernetes' schemas.

Helm is a binary that no package on PyPI brings. The chart keeps to five constructs of its templates (values, `quote`,
`toYaml | nindent`, `if` with `not`, and with `not (regexMatch ...)`), which `render` does, and refuses all others.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

Check = Callable[[str, Any], list[str]]
ACTION = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*(-?)\}\}")


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """("text" or "action", content); a dash inside the braces takes the blanks before them away."""
    at = 0
    for match in ACTION.finditer(text):
        assert not match[4], "a dash at an action's end is not used here"
        yield "text", text[at : match.start()] + ("" if match[2] else match[1])
        yield "action", match[3]
        at = match.end()
    yield "text", text[at:]


def render(text: str, scope: dict[str, Any]) -> str:
    """The template's text for `.Values` and `.Release`."""
    out: list[str] = []
    shown = [True]
    for kind, content in tokens(text):
        if kind == "text":
            out += [content] if all(shown) else []
        elif content == "end":
            shown.pop()
        elif match := re.fullmatch(r"if (not )?(\.[\w.]+)", content):
            shown.append(bool(value(scope, match[2])) is not bool(match[1]))
        elif match := re.fullmatch(r'if not \(regexMatch "([^"\\]+)" (\.[\w.]+)\)', content):
            shown.append(re.search(match[1], value(scope, match[2])) is None)
        elif all(shown):
            out.append(shape(scope, content))
    assert shown == [True], "an `if` without its `end`"
    return "".join(out)


def shape(scope: dict[str, Any], content: str) -> str:
    """One value, as its action writes it."""
    if match := re.fullmatch(r"toYaml (\.[\w.]+) \| nindent (\d+)", content):
        lines = yaml.safe_dump(value(scope, match[1])).rstrip().splitlines()
        return "".join(f"\n{' ' * int(match[2])}{line}" for line in lines)
    match = re.fullmatch(r"(\.[\w.]+)( \| quote)?", content)
    assert match, f"{content}: not one of the constructs that this chart keeps to"
    found = value(scope, match[1])
    return json.dumps(str(found)) if match[2] else str(found)


def value(scope: dict[str, Any], path: str) -> Any:
    found: Any = scope
    for name in path.strip(".").split("."):
        found = found[name]  # KeyError: a value that values.yaml does not have
    return found


@pytest.fixture(scope="module")
def chart(deploy: Path) -> Path:
    return deploy / "helm" / "ox"


@pytest.fixture
def documents(chart: Path) -> Callable[..., dict[str, Any]]:
    """The chart's documents by kind, with some values changed."""

    def render_all(release: str = "ox", **changes: Any) -> dict[str, Any]:
        values = copy.deepcopy(yaml.safe_load((chart / "values.yaml").read_text()))
        for name, change in changes.items():
            values[name] = {**values[name], **change} if isinstance(change, dict) else change
        text = (chart / "templates" / "ox.yaml").read_text()
        rendered = render(text, {"Values": values, "Release": {"Name": release}})
        return {document["kind"]: document for document in yaml.safe_load_all(rendered)}

    return render_all


def test_it_makes_what_the_base_has(documents: Callable[..., dict[str, Any]], deploy: Path, chart: Path) -> None:
    base = yaml.safe_load_all((deploy / "base" / "kubernetes.yaml").read_text())
    assert documents() == {document["kind"]: document for document in base}


VALUES: dict[str, dict[str, Any]] = {
    "as they are": {},
    "another name": {"release": "digits"},
    "a store": {"models": "s3://bucket/models", "cache": True, "credentialsSecret": "s3", "serviceAccountName": "ox"},
    "a GPU": {"device": "cuda", "image": "ox:0.1.0-cuda13", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
    "an autoscaler": {"autoscaling": {"enabled": True}},
}


@pytest.mark.parametrize("changes", VALUES.values(), ids=VALUES)
def test_what_it_makes_has_the_form_of_kubernetes(
    changes: dict[str, Any], documents: Callable[..., dict[str, Any]], check: Check, options: Any
) -> None:
    made = documents(**changes)
    for kind, document in made.items():
        assert check(kind, document) == []
    parsed = options(made["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"])
    assert parsed["models"] == [changes.get("models", "/models")]
    assert parsed["device"] == (changes.get("device") or "auto")


def test_an_autoscaler_sets_the_number_of_pods(documents: Callable[..., dict[str, Any]], deploy: Path) -> None:
    made = documents(autoscaling={"enabled": True})
    assert "replicas" not in made["Deployment"]["spec"]
    scaled = yaml.safe_load((deploy / "overlays" / "cpu" / "hpa.yaml").read_text())
    del scaled["spec"]["behavior"]
    assert made["HorizontalPodAutoscaler"] == scaled


def test_downloads_have_a_place(documents: Callable[..., dict[str, Any]]) -> None:
    pod = documents(cache=True)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    folder = next(entry["value"] for entry in container["env"] if entry["name"] == "OX_CACHE")
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == folder]
    assert {"name": mount["name"], "emptyDir": {}} in pod["volumes"] and not mount.get("readOnly")


@pytest.mark.parametrize("models", ["s3://bucket/models", "mlflow:models:/digits/1"])
def test_models_in_a_store(models: str, documents: Callable[..., dict[str, Any]]) -> None:
    """No claim that nobody has made, but credentials."""
    more = {"credentialsSecret": "store", "serviceAccountName": "reader"}
    pod = documents(models=models, cache=True, **more)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [volume["name"] for volume in pod["volumes"]] == ["keys", "cache"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["keys", "cache"]
    assert container["envFrom"] == [{"secretRef": {"name": "store"}}] and pod["serviceAccountName"] == "reader"


def test_the_image_reads_what_the_chart_names(chart: Path, deploy: Path) -> None:
    (scheme,) = set(re.findall(r"(\w+)://", (chart / "values.yaml").read_text()))
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", (deploy / "Containerfile").read_text(), re.M)
    assert scheme in extras.split(",")


def test_the_chart_has_the_form_of_helm(chart: Path, check: Check) -> None:
    assert check("Chart", yaml.safe_load((chart / "Chart.yaml").read_text())) == []


@pytest.mark.parametrize("text", ["{{ range .Values }}{{ end }}", "{{ .Values.x | upper }}", "{{ if .Values.x }}"])
def test_other_constructs_are_refused(text: str) -> None:
    with pytest.raises(AssertionError):
        render(text, {"Values": {"x": 1}})
