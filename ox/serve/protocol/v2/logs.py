"""The logging extension: clients read and change log settings at run time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ox.errors import ServeError
from ox.serve.protocol.v2.document import quote
from ox.serve.telemetry.logs import FORMS, LEVEL_FILTER, LOGGER, FormedHandler

SWITCHES = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
FORMATS = {"ISO8601": "text", **{form: form for form in FORMS}}  # Triton's name for lines with such a time
OFF = logging.CRITICAL + 10


class LogSettings:
    """The settings with Triton's names: a switch per level, `log_verbose_level` for lower levels, the format."""

    def __init__(self) -> None:
        self._verbose = 0
        LEVEL_FILTER.levels = frozenset()
        LOGGER.addFilter(LEVEL_FILTER)

    def settings(self) -> dict[str, Any]:
        """The current settings."""
        switches = {
            name: LOGGER.isEnabledFor(level) and level not in LEVEL_FILTER.levels for name, level in SWITCHES.items()
        }
        form = next((handler.form for handler in _handlers()), "default")
        verbose = max(self._verbose, 1) if LOGGER.isEnabledFor(logging.DEBUG) else 0
        return {"log_file": "", **switches, "log_verbose_level": verbose, "log_format": form}

    def update(self, changes: Mapping[str, Any]) -> None:
        """Changes settings; all or none. One that is null counts as absent.

        Raises:
            ServeError: unknown setting or invalid value.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        now = self.settings()
        for name, value in changes.items():
            if name in SWITCHES:
                _check(name, value, type(value) is bool, "true or false")
            elif name == "log_verbose_level":
                _check(name, value, type(value) is int and 0 <= value < 1 << 32, "a whole number")
            elif name == "log_format":
                _check(name, value, type(value) is str and (value in FORMATS or value == now[name]), ", ".join(FORMATS))
            elif name == "log_file":
                _check(name, value, value == "", "'', standard error: no client may have files written")
            else:
                raise ServeError(f"there is no log setting {quote(name)}", expected=", ".join(now))
        now.update(changes)
        self._verbose = now["log_verbose_level"]
        wanted = {level for name, level in SWITCHES.items() if now[name]} | (
            {logging.DEBUG} if self._verbose else set()
        )
        LEVEL_FILTER.levels = frozenset(SWITCHES.values()) - wanted
        LOGGER.setLevel(min(wanted, default=OFF))
        for handler in _handlers():
            handler.form = FORMATS.get(now["log_format"], handler.form)


def _handlers() -> list[FormedHandler]:
    """The server's log, and what writes the other lines of the process."""
    handlers = (*LOGGER.handlers, *logging.getLogger().handlers)
    return [handler for handler in handlers if isinstance(handler, FormedHandler)]


def _check(name: str, value: Any, fits: bool, expected: str) -> None:
    if not fits:
        raise ServeError(f"the log setting {name} is wrong", expected=expected, got=quote(value))


def typed_parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in the form of gRPC's message, each with its type."""
    kinds = {bool: "bool_param", int: "uint32_param", str: "string_param"}
    return {name: {kinds[type(value)]: value} for name, value in settings.items()}
