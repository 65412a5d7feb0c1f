"""What a process of the server counts beside its models."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ox.clock import Clock
from ox.serve.telemetry.access_log import AccessLog
from ox.serve.telemetry.logs import Log
from ox.serve.telemetry.snapshot import Snapshot, snapshot

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from ox.serve.repository.model import Model
    from ox.serve.repository.repository import Repository
    from ox.serve.telemetry.traces import Tracer
    from ox.serve.transport.http import ListenerState


class Telemetry:
    """What a server can tell about itself.

    `listener_states` are its listeners, `rpcs` counts answers over gRPC, code 0 first, `reloads` what became of models:
    (name, "loaded", "failed" or "unloaded").
    """

    def __init__(self, repository: Repository, clock: Clock) -> None:
        self.repository, self._clock = repository, clock
        self.listener_states: list[ListenerState] = []
        self.rpcs: Sequence[int] = ()
        self.reloads: Counter[tuple[str, str]] = Counter()
        self.log: Log | None = None
        self.access_log: AccessLog | None = None
        self.sample: Callable[[Model, Tracer], Tracer | None] = lambda _, tracer: tracer  # which requests are traced
        self._traces: TracerProvider | None = None
        self._tracers: WeakKeyDictionary[Model, Tracer] = WeakKeyDictionary()

    def open(self, *, log: str | None, level: str, access: bool, trace: bool) -> None:
        """Begins to log in the form `log`, with ids for requests and a line for each if `access` is on, and to trace.

        Raises:
            ArgumentError: traces need what is not installed.
        """
        if trace:
            from ox.serve.telemetry.traces import provider

            self.trace(provider())
        if log is not None or access:
            self.log, self.access_log = Log(log or "text", level), AccessLog(access, self._clock)
            for listener_state in self.listener_states:
                listener_state.access_log = self.access_log

    def trace(self, provider: TracerProvider) -> None:
        """From now on inferences become spans, also those of models that are loaded later."""
        self._traces = provider
        self.repository.changed.append(self.retrace)
        self.retrace()

    @property
    def tracing(self) -> bool:
        """Whether there is somewhere for spans to go."""
        return self._traces is not None

    def retrace(self) -> None:
        """Gives every model what traces its requests."""
        from ox.serve.telemetry.traces import Tracer

        if self._traces is None:
            return
        for model in self.repository.models():
            tracer = self._tracers.get(model)
            if tracer is None:
                tracer = self._tracers[model] = Tracer(self._traces, model.name, model.version, self._clock)
            model.stages.tracer = self.sample(model, tracer)

    async def close(self) -> None:
        """Sends and writes what waits, for three seconds at most."""
        if self._traces is not None:
            # A collector that does not answer may not keep the server from stopping.
            last = threading.Thread(target=self._traces.shutdown, daemon=True)
            last.start()
            await asyncio.to_thread(last.join, 3.0)
        if self.log is not None:
            await asyncio.to_thread(self.log.close)

    async def snapshot(self) -> Snapshot:
        """This process alone. Called on the event loop."""
        replies: Counter[int] = sum((listener_state.replies for listener_state in self.listener_states), Counter())
        reloads: dict[str, dict[str, int]] = {}
        for (model, outcome), count in self.reloads.items():
            reloads.setdefault(model, {})[outcome] = count
        server = {
            "replies": {str(status): count for status, count in replies.items()},
            "rpcs": {str(code): count for code, count in enumerate(self.rpcs) if count},
            "connections": sum(len(listener_state.connections) for listener_state in self.listener_states),
            "buffered": sum(listener_state.buffered for listener_state in self.listener_states),
            "answers": sum(
                listener_state.response_memory.used + listener_state.unread for listener_state in self.listener_states
            ),
            "answer_waits": sum(listener_state.response_memory.wait_count for listener_state in self.listener_states),
            "answer_wait_s": sum(listener_state.response_memory.wait_s for listener_state in self.listener_states),
            "slow": sum(listener_state.slow_clients for listener_state in self.listener_states),
            "reloads": reloads,
            "dropped": 0 if self.log is None else self.log.dropped,
        }
        return await snapshot(self.repository.models(), server, self._clock)
