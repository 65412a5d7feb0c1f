"""The trace extension: clients read and change at run time which requests become spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ox.errors import ServeError
from ox.serve.protocol.v2.document import quote

if TYPE_CHECKING:
    from ox.serve.repository.model import Model
    from ox.serve.telemetry.telemetry import Telemetry
    from ox.serve.telemetry.traces import Tracer

LEVELS = (["OFF"], ["TIMESTAMPS"])
FIXED_SETTINGS = {"trace_mode": "opentelemetry", "trace_file": "", "log_frequency": "0"}  # OTEL_* sets the exporter
MAX_VALUE = 1 << 31


class TraceSetting(NamedTuple):
    """Sampling: off, or one of `rate` requests up to `total` spans; -1 for no limit."""

    on: bool
    rate: int = 1
    total: int = -1

    def settings(self) -> dict[str, list[str]]:
        """The setting in the protocol's format."""
        level = LEVELS[self.on]
        return {
            "trace_level": level,
            "trace_rate": [str(self.rate)],
            "trace_count": [str(self.total)],
            **{name: [value] for name, value in FIXED_SETTINGS.items()},
        }


class TraceSettings:
    """The default setting and the settings of single models. With `ox serve --trace` the default is all requests.

    Args:
        telemetry: sets the tracers of the models.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._default: TraceSetting | None = None
        self._by_model: dict[str, TraceSetting] = {}
        self._quotas: dict[str, Quota] = {}
        telemetry.sample = self.sample

    @property
    def _initial(self) -> TraceSetting:
        return TraceSetting(self._telemetry.tracing)

    def setting(self, model: str = "") -> TraceSetting:
        """The setting of a model, or the default."""
        return self._by_model.get(model) or self._default or self._initial

    def update(self, model: str, changes: Mapping[str, list[str] | None]) -> None:
        """Changes settings of one model or the default; empty `changes` remove the settings of a model.

        Raises:
            ServeError: unknown setting, invalid value, or tracing is not enabled.
        """
        setting = self.setting(model)
        for name, value in changes.items():
            setting = self._apply(setting, name, value)
        if setting.on and not self._telemetry.tracing:
            raise ServeError("tracing is not enabled", status=409, hint="ox serve --trace")
        if not model:
            self._default = setting
        elif changes:
            self._by_model[model] = setting
        else:
            self._by_model.pop(model, None)
        self._quotas.clear()
        self._telemetry.retrace()

    def _apply(self, setting: TraceSetting, name: str, value: list[str] | None) -> TraceSetting:
        start = self._initial.settings()
        if name not in start:
            raise ServeError(f"there is no trace setting {quote(name)}", expected=", ".join(start))
        value = start[name] if value is None or not value else value
        if name == "trace_level":
            if value not in LEVELS:
                raise _wrong(name, "OFF or TIMESTAMPS", value)
            return setting._replace(on=value == LEVELS[True])
        if name == "trace_rate":
            return setting._replace(rate=_number(name, value, 1))
        if name == "trace_count":
            return setting._replace(total=_number(name, value, -1))
        if value != start[name]:
            raise _wrong(name, f"'{FIXED_SETTINGS[name]}'", value)
        return setting

    def sample(self, model: Model, tracer: Tracer) -> Any:
        """The tracer of a model for its setting; None if tracing is off."""
        setting = self.setting(model.name)
        if not setting.on:
            return None
        if setting.rate == 1 and setting.total < 0:
            return tracer
        quota = self._quotas.setdefault(model.name, Quota(setting.rate, setting.total))
        return SampledTracer(tracer, quota)


class SampledTracer:
    """A tracer that samples requests."""

    def __init__(self, tracer: Tracer, quota: Quota) -> None:
        self._tracer, self._quota = tracer, quota

    def answered(self, *what: Any) -> None:
        if self._quota.due():
            self._tracer.answered(*what)

    def failed(self, *what: Any) -> None:
        if self._quota.due():
            self._tracer.failed(*what)


class Quota:
    """The sampling state of a model, across its versions: one of `rate` requests, `count` in total."""

    def __init__(self, rate: int, count: int) -> None:
        self._rate, self._left = rate, count
        self._seen = 0

    def due(self) -> bool:
        self._seen += 1
        if self._left == 0 or self._seen % self._rate:
            return False
        self._left -= self._left > 0
        return True


def _number(name: str, value: list[str], least: int) -> int:
    try:
        (text,) = value
        number = int(text) if len(text) < 12 else MAX_VALUE
    except ValueError:
        number = MAX_VALUE
    if not least <= number < MAX_VALUE:
        raise _wrong(name, f"a whole number from {least} on", value)
    return number


def _wrong(name: str, expected: str, value: list[str]) -> ServeError:
    got = ", ".join(quote(word) for word in value[:4])
    return ServeError(f"the trace setting {name} is wrong", expected=expected, got=got)
