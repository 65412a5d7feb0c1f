"""What a client holds of its request."""

from __future__ import annotations

from collections.abc import Callable


class GenerationHandle:
    """A request that the engine has accepted. Every method may be called from any thread, also when the text has ended.

    Args:
        wake: tells the engine that something has changed.
    """

    __slots__ = ("_wake", "cancelled", "paused")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.cancelled = self.paused = False

    def cancel(self) -> None:
        """The text is not needed any more: its last event, "cancelled", follows, unless the text ended before."""
        self.cancelled = True
        self._wake()

    def pause(self) -> None:
        """No further tokens for now: whoever reads them is slow. A token that is being computed may still come. Another
        text may get the slot meanwhile."""
        self.paused = True
        self._wake()

    def resume(self) -> None:
        """Further tokens are welcome again."""
        self.paused = False
        self._wake()
