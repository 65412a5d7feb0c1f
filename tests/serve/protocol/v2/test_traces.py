"""Which requests are traced, by settings that really change it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ox.errors import ServeError
from ox.serve.protocol.v2.traces import Quota, SampledTracer, TraceSettings

OFF = {
    "trace_level": ["OFF"], "trace_rate": ["1"], "trace_count": ["-1"], "trace_mode": ["opentelemetry"],
    "trace_file": [""], "log_frequency": ["0"],
}  # fmt: skip
ON = OFF | {"trace_level": ["TIMESTAMPS"]}


class Telemetry:
    """Gives two models tracers that count, as the settings say."""

    def __init__(self, tracing: bool) -> None:
        self.tracing = tracing
        self.sample: Any = None
        self.models = [Model(name) for name in ("a", "b")]

    def retrace(self) -> None:
        for model in self.models:
            model.tracer = self.sample(model, model.counting)


class Model:
    def __init__(self, name: str) -> None:
        self.name, self.seen = name, 0
        self.counting = SimpleNamespace(answered=self._see, failed=self._see)
        self.tracer: Any = None

    def _see(self, *_: Any) -> None:
        self.seen += 1

    def serve(self, count: int) -> int:
        """How many of so many requests are traced."""
        before = self.seen
        for number in range(count):
            if self.tracer is not None:
                (self.tracer.failed if number % 3 else self.tracer.answered)(None)
        return self.seen - before


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(True)


def test_all_rate_and_count(telemetry: Telemetry) -> None:
    settings = TraceSettings(telemetry)  # type: ignore[arg-type]
    telemetry.retrace()
    a, b = telemetry.models
    assert settings.setting().settings() == settings.setting("a").settings() == ON
    assert (a.serve(10), b.serve(10)) == (10, 10)
    settings.update("", {"trace_level": ["OFF"]})
    assert (a.serve(10), b.serve(10)) == (0, 0) and settings.setting("a").settings() == OFF
    settings.update("a", {"trace_level": ["TIMESTAMPS"], "trace_rate": ["4"], "trace_count": ["3"]})
    assert (a.serve(10), b.serve(10)) == (2, 0)
    telemetry.retrace()  # another model came or went: nobody starts to count anew
    assert (a.serve(100), b.serve(10)) == (1, 0)
    settings.update("a", {"trace_count": None})
    assert a.serve(100) == 25
    settings.update("a", {})
    assert a.serve(10) == 0 and settings.setting("a").settings() == OFF
    settings.update("", {})
    assert settings.setting().settings() == OFF
    settings.update("", {"trace_level": None})
    assert a.serve(10) == 10


def test_nowhere_to_go() -> None:
    settings = TraceSettings(Telemetry(False))  # type: ignore[arg-type]
    assert settings.setting().settings() == OFF
    with pytest.raises(ServeError, match="tracing is not enabled") as caught:
        settings.update("", {"trace_level": ["TIMESTAMPS"]})
    assert caught.value.status == 409
    settings.update("a", {"trace_rate": ["5"]})
    assert settings.setting("a").settings()["trace_rate"] == ["5"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("trace_level", ["TENSORS"]), ("trace_level", ["OFF", "TIMESTAMPS"]), ("trace_rate", ["0"]), ("trace_rate", ["x"]),
     ("trace_rate", ["1", "2"]), ("trace_rate", ["9" * 5000]), ("trace_count", ["-2"]), ("trace_mode", ["triton"]),
     ("trace_file", ["/etc/passwd"]), ("log_frequency", ["5"]), ("trace_poem", ["x"])],
)  # fmt: skip
def test_wrong_settings(telemetry: Telemetry, name: str, value: list[str]) -> None:
    settings = TraceSettings(telemetry)  # type: ignore[arg-type]
    with pytest.raises(ServeError, match=name) as caught:
        settings.update("", {"trace_rate": ["3"], name: value})
    assert caught.value.status == 400 and len(caught.value.one_line()) < 400
    assert settings.setting().settings() == ON
    settings.update("", {"trace_file": [""], "trace_mode": ["opentelemetry"], "log_frequency": None, "trace_level": []})


def test_a_sample_ends() -> None:
    seen: list[Any] = []
    sample = SampledTracer(SimpleNamespace(answered=seen.append, failed=seen.append), Quota(2, 2))  # type: ignore[arg-type]
    for number in range(100):
        sample.answered(number)
    assert seen == [1, 3]
