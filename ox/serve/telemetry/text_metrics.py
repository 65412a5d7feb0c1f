"""Metrics of models that generate texts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ox.serve.telemetry.family import add_histogram
from ox.serve.telemetry.histogram import SECONDS
from ox.serve.telemetry.snapshot import Snapshot

MODEL = ["model", "version"]
GAUGES = {
    "running": ("ox_texts_running", "Texts that have a slot of the cache"),
    "waiting": ("ox_texts_waiting", "Texts that wait for a slot"),
    "blocks": ("ox_cache_blocks_used", "Blocks of the cache in slots of texts, and kept for later prompts"),
    "kept_blocks": ("ox_cache_blocks_kept", "Blocks of the cache that are kept for later prompts, and in no slot"),
    "most_blocks": ("ox_cache_blocks", "Blocks that the memory of the cache holds"),
}
COUNTERS = {
    "requests": ("ox_text_requests", "Texts that the engine has accepted, also those that have not ended"),
    "prompt_tokens": ("ox_prompt_tokens", "Tokens of prompts"),
    "cached_tokens": ("ox_cached_prompt_tokens", "Tokens of prompts that were known, and not computed"),
    "completion_tokens": ("ox_generated_tokens", "Generated tokens"),
    "drafted_tokens": ("ox_drafted_tokens", "Tokens that were guessed, from the text before them or by a draft model"),
    "accepted_tokens": ("ox_accepted_tokens", "Guessed tokens that were right"),
    "preemptions": ("ox_preemptions", "Texts that lost their slot for a while"),
    "busy_s": ("ox_generation_seconds", "Time in which tokens were computed"),
}
TIMES = {
    "first_token": ("ox_first_token_seconds", "Time from the arrival of a request to the first token of its text"),
    "between_tokens": ("ox_token_interval_seconds", "Time between two tokens of a text"),
}


def families(figures: Snapshot) -> Iterator[Metric]:
    """Nothing where no model generates texts."""
    texts = [
        ([name, version], model["texts"])
        for name, versions in figures["models"].items()
        for version, model in versions.items()
        if "texts" in model
    ]
    if not texts:
        return
    ends = CounterMetricFamily("ox_texts", "Texts that have ended, by the reason", labels=[*MODEL, "reason"])
    for labels, entry in texts:
        for reason, count in entry["ends"].items():
            ends.add_metric([*labels, reason], count)
    yield ends
    for key, (name, text) in GAUGES.items():
        yield _filled(GaugeMetricFamily(name, text, labels=MODEL), key, texts)
    for key, (name, text) in COUNTERS.items():
        yield _filled(CounterMetricFamily(name, text, labels=MODEL), key, texts)
    for key, (name, text) in TIMES.items():
        times = HistogramMetricFamily(name, text, labels=MODEL)
        for labels, entry in texts:
            add_histogram(times, labels, SECONDS, entry["times"][key])
        yield times


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, key: str, texts: list[tuple[list[str], Snapshot]]
) -> Metric:
    for labels, entry in texts:
        family.add_metric(labels, entry[key])
    return family
