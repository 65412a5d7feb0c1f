"""The models of a server by name and version. Everything here happens on the event loop's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ox.errors import ServeError
from ox.serve.repository.model import Model


class Repository:
    """Finds models. `changed` holds what is called after each change of what `find` would answer."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = {model.name: model for model in models}
        self.changed: list[Callable[[], None]] = []

    def models(self) -> list[Model]:
        """Those that answer, in the order of their names' arrival."""
        return list(self._models.values())

    def find(self, name: str, version: str = "") -> Model:
        """The model of that name; without a version the newest.

        Raises:
            ServeError: there is none (404), or it is not ready (503).
        """
        model = self._models.get(name)
        if model is None:
            names = ", ".join(f"'{other}'" for other in self._models)
            raise ServeError(f"there is no model '{name[:100]}'", status=404, expected=names)
        if version and version != model.version:
            what = f"model '{name}' has no version '{version[:100]}'"
            raise ServeError(what, status=404, expected=f"'{model.version}'")
        return model
