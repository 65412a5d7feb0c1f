"""The calls that changed all workers' state; a new worker replays them."""

from __future__ import annotations

from typing import Any

Call = tuple[str, dict[str, Any]]


class ReplayLog:
    """The last call for each model, shared memory region, log setting and model's trace setting."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], Call] = {}

    def note(self, call: str, arguments: dict[str, Any]) -> None:
        """Records a call that every worker has run."""
        if call in ("load", "unload"):
            self._put(("model", arguments["name"]), call, arguments)
        elif call.endswith("shared_memory_register"):
            self._put((call.removesuffix("_register"), arguments["region"]), call, arguments)
        elif call.endswith("shared_memory_unregister"):  # a new worker has no regions
            kind, region = call.removesuffix("_unregister"), arguments["region"]
            self._calls = {key: old for key, old in self._calls.items() if key[0] != kind or region not in ("", key[1])}
        else:  # settings, of which a call may change a part
            key = (call, str(arguments.get("model", "")))
            known = self._calls[key][1]["settings"] if key in self._calls and arguments["settings"] else {}
            self._put(key, call, {**arguments, "settings": {**known, **arguments["settings"]}})

    def _put(self, key: tuple[str, str], call: str, arguments: dict[str, Any]) -> None:
        self._calls.pop(key, None)  # the newest comes last
        self._calls[key] = (call, arguments)

    def calls(self) -> list[Call]:
        return list(self._calls.values())
