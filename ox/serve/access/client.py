"""Who sends a request: a key or an address, and how many tokens of texts it may still use."""

from __future__ import annotations

from typing import NamedTuple

from ox.errors import ServeError
from ox.serve.access.bucket import Bucket
from ox.serve.access.key import Key


class Client(NamedTuple):
    """A client that `Guard.client` knows.

    Attributes:
        name: of its key; its address where keys are not needed.
        key: None where keys are not needed.
        tokens: what is left of its tokens per minute; None for no limit.
    """

    name: str
    key: Key | None = None
    tokens: Bucket | None = None

    def may(self, action: str, model: str) -> bool:
        """Whether it may do that with that model."""
        return self.key is None or self.key.may(action, model)

    def check(self, action: str, model: str) -> None:
        """Raises ServeError (403) if it may not do that with that model. The call has been counted already."""
        if not self.may(action, model):
            raise ServeError(f"the key '{self.name}' does not permit '{action}' for model '{model[:100]}'", status=403)

    def reserve(self, count: int, now: float) -> float:
        """Takes tokens in advance, at the time `now`; a request for more than a whole minute's takes these.

        Returns:
            how many it took, for `settle`.

        Raises:
            ServeError: too many of the last minute are used (429).
        """
        if self.tokens is None:
            return 0.0
        reserved = min(float(count), self.tokens.burst)
        wait = self.tokens.take(now, reserved)
        if wait:
            expected = f"at most {60 * self.tokens.rate:g} tokens a minute"
            raise ServeError("token rate limit exceeded", status=429, retry_after=wait, expected=expected)
        return reserved

    def settle(self, reserved: float, used: int) -> None:
        """Counts what a request really used, in place of what it reserved. More than there is makes later ones wait."""
        if self.tokens is not None:
            self.tokens.give(reserved - used)
