"""deploy/grafana/ox.json: a dashboard of metrics that exist."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ox.serve import Server
from ox.serve.telemetry.metrics import render

NAME = re.compile(r"\b(?:ox|nv|process)_\w+")
SELECTED = re.compile(r"\b((?:ox|nv|process)_\w+)\{([^}]*)\}")
OUTSIDE = {"job", "instance"}  # labels that Prometheus adds


@pytest.fixture(scope="module")
def dashboard(deploy: Path) -> Any:
    return json.loads((deploy / "grafana" / "ox.json").read_text())


@pytest.fixture(scope="module")
def shown(server: Server) -> dict[str, set[str]]:
    """Every sample of /metrics that there can be, and its labels."""
    figures = asyncio.run(server.service.telemetry.snapshot())
    for model in (versions["1"] for versions in figures["models"].values()):
        for histogram in (*model["times"].values(), model["batch_rows"]):
            histogram["counts"][0] += 1
    figures["gpus"] = {"GPU-1": {"used": 1.0, "total": 2.0, "load": 0.5}}
    figures["server"].update(reloads={"mlp": {"ok": 1}}, rpcs={"0": 1}, replies={"200": 1})
    text = render([figures])[0].decode()
    samples: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    return samples


def queries(dashboard: Any) -> list[str]:
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return found + [its["definition"] for its in dashboard["templating"]["list"] if "definition" in its]


def wrong_names(dashboard: Any, shown: dict[str, set[str]]) -> list[str]:
    """Metrics and labels of the queries that /metrics does not have."""
    found = []
    for query in queries(dashboard):
        names = set(NAME.findall(query))
        found += [name for name in names if name not in shown]
        for name, selectors in SELECTED.findall(query):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selectors))
            found += [f"{name} has no label {label}" for label in labels - OUTSIDE - shown.get(name, labels)]
        known = set().union(*(shown.get(name, set()) for name in names)) | OUTSIDE
        for group in re.findall(r"\bby \(([^)]*)\)", query):
            found += [f"nothing has the label {label}" for label in re.split(r",\s*", group) if label not in known]
    return found


def test_it_is_a_dashboard(dashboard: Any, check: Callable[[str, Any], list[str]]) -> None:
    assert check("Dashboard", dashboard) == []
    broken = copy.deepcopy(dashboard)
    broken["panels"][1]["targets"][0]["expression"] = broken["panels"][1]["targets"][0].pop("expr")
    assert check("Dashboard", broken)


def test_every_query_finds_its_metrics(dashboard: Any, shown: dict[str, set[str]]) -> None:
    assert len(queries(dashboard)) > 20 and wrong_names(dashboard, shown) == []


@pytest.mark.parametrize(
    "query", ["sum(ox_reqests_total)", 'ox_queue_depth{modell="a"}', "sum by (stages) (ox_workers)"]
)
def test_a_wrong_name_is_found(dashboard: Any, shown: dict[str, set[str]], query: str) -> None:
    broken = copy.deepcopy(dashboard)
    broken["panels"][1]["targets"][0]["expr"] = query
    assert len(wrong_names(broken, shown)) == 1


def test_prometheus_can_parse_them(dashboard: Any) -> None:
    promql = pytest.importorskip("promql_parser", reason="no parser of PromQL is installed")
    for query in queries(dashboard):
        if not query.startswith("label_values"):
            promql.parse(query.replace("$__rate_interval", "5m"))


def test_what_matters_is_shown(dashboard: Any, shown: dict[str, set[str]]) -> None:
    """Every metric of ours but those that another one says as well."""
    used = set(NAME.findall(" ".join(queries(dashboard))))
    families = {re.sub(r"_(bucket|sum|count|total|created)$", "", name) for name in shown if name.startswith("ox_")}
    seen = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in used}
    apart = {"ox_answer_bytes", "ox_answer_waits", "ox_answer_wait_seconds", "ox_slow_clients"}
    assert families - seen == {"ox_body_bytes", "ox_log_dropped", *apart}


def test_panels_do_not_overlap_and_have_their_own_numbers(dashboard: Any) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
