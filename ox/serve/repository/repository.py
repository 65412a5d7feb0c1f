"""The models of a server by name and version. Everything here happens on the event loop's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ox.errors import ServeError
from ox.serve.repository.entry import LOADING, READY, UNAVAILABLE, Entry
from ox.serve.repository.model import Model


class Repository:
    """Finds models. `changed` holds what is called after each change of what `find` would answer.

    `hide_names`: errors do not name other models than the requested one. `strict`: requests for texts with unknown
    parameters are refused.
    """

    def __init__(self, models: Iterable[Model] = ()) -> None:
        self.entries: dict[str, Entry] = {}
        self.changed: list[Callable[[], None]] = []
        self.hide_names = self.strict = False
        self.routes: Mapping[tuple[str, str], Model] = {}  # by name or alias, and "", a version or a label
        for model in models:
            self.entry(model.name).slot(int(model.version)).runs(model, None)
        self.refresh()

    def entry(self, name: str) -> Entry:
        """What is known of a model, from now on at the latest."""
        return self.entries.setdefault(name, Entry(name))

    def refresh(self) -> None:
        """Makes `find` use the current entries."""
        routes: dict[tuple[str, str], Model] = {}
        by_name = [(entry.name, entry) for entry in self.entries.values()]
        by_alias = [(alias, entry) for entry in self.entries.values() if entry.setup for alias in entry.setup.aliases]
        for name, entry in (*reversed(by_alias), *by_name):  # later ones win: a model's own name, then the first alias
            running = entry.running()
            models = {slot.number: slot.model for slot in running if slot.model is not None}
            labels = entry.setup.labels if entry.setup else {}
            for route in [route for route in routes if route[0] == name]:
                del routes[route]
            routes |= {(name, str(number)): model for number, model in models.items()}
            routes |= {(name, label): models[number] for label, number in labels.items() if number in models}
            if running:
                routes[name, ""] = models[running[0].number]
        self.routes = routes
        for call in self.changed:
            call()

    def models(self) -> list[Model]:
        """Those that answer, in the order of their names' arrival, the newest version first."""
        return [slot.model for entry in self.entries.values() for slot in entry.running() if slot.model is not None]

    def find(self, name: str, version: str = "") -> Model:
        """The model of that name or alias; `version` is a number, a label, or nothing for the newest.

        Raises:
            ServeError: there is none (404), or it is not ready (400).
        """
        model = self.routes.get((name, version))
        if model is None:
            raise self._missing(name, version)
        return model

    def index(self, ready: bool = False) -> list[dict[str, Any]]:
        """Every version of every model that is known, with its state, in the protocol's form."""
        rows: list[dict[str, Any]] = []
        for entry in self.entries.values():
            slots = sorted(entry.slots.values(), key=lambda slot: slot.number)
            known = [slot for slot in slots if slot.known]
            states = [(str(slot.number), slot.state, slot.why or entry.problem) for slot in known]
            for version, state, reason in states or [("", UNAVAILABLE, entry.problem)]:
                if state == READY or not ready:
                    rows.append({"name": entry.name, "version": version, "state": state, "reason": reason})
        return rows

    def unknown(self, name: str) -> ServeError:
        """The error for an unknown name."""
        what = f"there is no model '{name[:100]}'"
        if self.hide_names:  # the client's key may be for a few models only
            return ServeError(what, status=404)
        names = ", ".join(f"'{by_alias}'" for by_alias in list(self.entries)[:20])
        return ServeError(what, status=404, expected=names or "no model is served")

    def _missing(self, name: str, version: str) -> ServeError:
        entry = self.entries.get(name) or next(
            (entry for entry in self.entries.values() if entry.setup and name in entry.setup.aliases), None
        )
        if entry is None:
            return self.unknown(name)
        labels = entry.setup.labels if entry.setup else {}
        slots = {str(number): slot for number, slot in entry.slots.items() if slot.known}
        slots |= {label: entry.slots[number] for label, number in labels.items() if number in entry.slots}
        if version and version not in slots:
            known = ", ".join(f"'{slot.number}'" for slot in entry.running())
            what = f"model '{entry.name}' has no version '{version[:100]}'"
            if version in labels:
                what += f", which is a label for version {labels[version]}"
            return ServeError(what, status=404, expected=known or "no version is served")
        newest = max(slots.values(), key=lambda slot: slot.number, default=None)
        found = slots[version] if version else newest
        if found is None:
            return ServeError(f"model '{entry.name}' is not ready", got=entry.problem or "no version is served")
        what = f"model '{entry.name}', version {found.number}, is not ready"
        return ServeError(what, got=found.state if found.state == LOADING else found.reason or found.state)
