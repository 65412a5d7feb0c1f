"""The trace extension: which inferences become spans can be asked for and changed while the server runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ox.errors import ServeError
from ox.serve.v2.document import quote

if TYPE_CHECKING:
    from ox.serve.repository.model import Model
    from ox.serve.telemetry.telemetry import Telemetry
    from ox.serve.telemetry.traces import Tracer

LEVELS = (["OFF"], ["TIMESTAMPS"])
FIXED = {"trace_mode": "opentelemetry", "trace_file": "", "log_frequency": "0"}  # spans go where OTEL_* says
LARGEST = 1 << 31


class Setting(NamedTuple):
    """What is traced: nothing, or one of `rate` requests until there are `total`; -1 for ever."""

    on: bool
    rate: int = 1
    total: int = -1

    def settings(self) -> dict[str, list[str]]:
        """In the protocol's words."""
        level = LEVELS[self.on]
        return {
            "trace_level": level,
            "trace_rate": [str(self.rate)],
            "trace_count": [str(self.total)],
            **{name: [value] for name, value in FIXED.items()},
        }


class TraceSettings:
    """The setting of all models, and those of single ones. A server that was started with --trace traces everything.

    Args:
        telemetry: what gives models their tracers.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._common: Setting | None = None
        self._own: dict[str, Setting] = {}
        self._quotas: dict[str, Quota] = {}
        telemetry.sample = self.sample

    @property
    def _start(self) -> Setting:
        return Setting(self._telemetry.tracing)

    def setting(self, model: str = "") -> Setting:
        """What holds for a model, or for all that have no setting of their own."""
        return self._own.get(model) or self._common or self._start

    def update(self, model: str, changes: Mapping[str, list[str] | None]) -> None:
        """Changes some settings, of one model or of all; none at all for a model takes its own away.

        Raises:
            ServeError: there is no such setting, it cannot have that value, or there is nowhere for spans to go.
        """
        setting = self.setting(model)
        for name, value in changes.items():
            setting = self._changed(setting, name, value)
        if setting.on and not self._telemetry.tracing:
            raise ServeError("traces have nowhere to go", status=409, hint="ox serve --trace")
        if not model:
            self._common = setting
        elif changes:
            self._own[model] = setting
        else:
            self._own.pop(model, None)
        self._quotas.clear()
        self._telemetry.retrace()

    def _changed(self, setting: Setting, name: str, value: list[str] | None) -> Setting:
        start = self._start.settings()
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
            raise _wrong(name, f"'{FIXED[name]}'", value)
        return setting

    def sample(self, model: Model, tracer: Tracer) -> Any:
        """What traces a model's requests as its setting says; None for nothing."""
        setting = self.setting(model.name)
        if not setting.on:
            return None
        if setting.rate == 1 and setting.total < 0:
            return tracer
        quota = self._quotas.setdefault(model.name, Quota(setting.rate, setting.total))
        return Sample(tracer, quota)


class Sample:
    """A tracer that is told of some requests only."""

    def __init__(self, tracer: Tracer, quota: Quota) -> None:
        self._tracer, self._quota = tracer, quota

    def answered(self, *what: Any) -> None:
        if self._quota.due():
            self._tracer.answered(*what)

    def failed(self, *what: Any) -> None:
        if self._quota.due():
            self._tracer.failed(*what)


class Quota:
    """Which requests of a model are traced, whatever versions of it come and go: one of `rate`, `count` in all."""

    def __init__(self, rate: int, count: int) -> None:
        self._rate, self._left = rate, count
        self._passed = 0

    def due(self) -> bool:
        self._passed += 1
        if self._left == 0 or self._passed % self._rate:
            return False
        self._left -= self._left > 0
        return True


def _number(name: str, value: list[str], least: int) -> int:
    try:
        (text,) = value
        number = int(text) if len(text) < 12 else LARGEST
    except ValueError:
        number = LARGEST
    if not least <= number < LARGEST:
        raise _wrong(name, f"a whole number from {least} on", value)
    return number


def _wrong(name: str, expected: str, value: list[str]) -> ServeError:
    got = ", ".join(quote(word) for word in value[:4])
    return ServeError(f"the trace setting {name} is wrong", expected=expected, got=got)
