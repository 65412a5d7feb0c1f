"""One API key: whom it belongs to, what it may do, and the hash that it is recognised by.

A key is 32 random bytes, so one round of SHA-256 keeps it safe at rest: 2^256 keys cannot be tried. Slow hashes
(scrypt, argon2) are for passwords, which people choose; here they would only cost every request milliseconds.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fnmatch import translate
from typing import Any

from ox.errors import ArgumentError

ACTIONS = ("infer", "read", "manage", "metrics")
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
HASH = re.compile(r"sha256:([0-9a-f]{64})")
FIELDS = {"hash", "models", "actions", "rate", "burst", "tokens_per_minute", "expires"}
PREFIX = "ox_"  # what scanners for leaked secrets look for


@dataclass(frozen=True)
class Key:
    """One entry of a key file.

    Args:
        name: for people and logs.
        digest: SHA-256 of the key.
        models: patterns of model names, as a shell has them; "*" includes calls about all models.
        actions: some of `ACTIONS`.
        rate, burst: calls per second on average, and at once; None for no limit of the key.
        expires: from then on it is refused; None for never.
        tokens_per_minute: of prompts and texts together; None for no limit of the key.
    """

    name: str
    digest: bytes
    models: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ("infer", "read")
    rate: float | None = None
    burst: float | None = None
    expires: datetime | None = None
    tokens_per_minute: float | None = None
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        def wrong(what: str, expected: str, got: object) -> ArgumentError:
            return ArgumentError(f"key '{self.name[:64]}': {what}", expected=expected, got=str(got)[:100])

        if not NAME.fullmatch(self.name):
            raise wrong("invalid name", "1 to 64 letters, digits or any of _ . @ -", self.name)
        if not self.models or not all(type(pattern) is str and 0 < len(pattern) <= 200 for pattern in self.models):
            raise wrong("'models' is not a list of patterns", '["mlp*", "cnn"], or ["*"] for all', self.models)
        if not self.actions or not set(self.actions) <= set(ACTIONS):
            raise wrong("'actions' has an unknown action", ", ".join(ACTIONS), self.actions)
        for label, expected in (
            ("rate", "a number above 0"),
            ("burst", "a number from 1 on"),
            ("tokens_per_minute", "a number from 1 on"),
        ):
            value = getattr(self, label)
            if value is None:
                continue
            if type(value) not in (int, float) or not 0 < value < math.inf or (label != "rate" and value < 1):
                raise wrong(f"'{label}' is out of range", expected, value)
        if self.burst is not None and self.rate is None:
            raise wrong("'burst' needs 'rate'", "both, or 'rate' alone", self.burst)
        if self.expires is not None and self.expires.tzinfo is None:
            raise wrong("'expires' is without a time zone", "2027-01-31T00:00:00Z", self.expires)
        object.__setattr__(self, "pattern", re.compile("|".join(map(translate, self.models))))

    @classmethod
    def from_table(cls, name: str, table: Any) -> Key:
        """A key from its table in a key file.

        Raises:
            ArgumentError: something is missing, unknown or out of range.
        """
        if type(table) is not dict:
            raise ArgumentError(f"key '{name[:64]}' is not a table", expected=f"[keys.{name[:64]}]")
        unknown = sorted(set(table) - FIELDS)
        if unknown:  # a misspelt "expires" would otherwise never expire
            raise ArgumentError(f"key '{name[:64]}' has unknown fields", expected=", ".join(sorted(FIELDS)),
                                got=", ".join(unknown)[:200])  # fmt: skip
        known = dict(table)
        digest = HASH.fullmatch(str(known.pop("hash", "")))
        if digest is None:
            raise ArgumentError(f"key '{name[:64]}' has no hash", expected='"sha256:" and 64 hexadecimal digits')
        for label in ("models", "actions"):
            if label in known:
                if type(known[label]) is not list or not all(type(item) is str for item in known[label]):
                    raise ArgumentError(f"key '{name[:64]}': '{label}' is not a list of strings")
                known[label] = tuple(known[label])
        expires = known.get("expires")
        if type(expires) is date:
            known["expires"] = datetime(expires.year, expires.month, expires.day, tzinfo=UTC)
        elif expires is not None and type(expires) is not datetime:
            raise ArgumentError(f"key '{name[:64]}': 'expires' is not a date", expected="2027-01-31, without quotes")
        return cls(name, bytes.fromhex(digest[1]), **known)

    def may(self, action: str, model: str) -> bool:
        """Whether it may do that with that model; "*" is all of them at once, "" is about none."""
        if action not in self.actions:
            return False
        return "*" in self.models or not model or (model != "*" and self.pattern.match(model) is not None)

    def expired(self, now: float) -> bool:
        """`now` is the time of day, in seconds since 1970."""
        return self.expires is not None and now >= self.expires.timestamp()


def digest_of(secret: bytes) -> bytes:
    """What a key file keeps of a key."""
    return hashlib.sha256(secret).digest()


def new_secret() -> str:
    """A new random key."""
    return PREFIX + secrets.token_urlsafe(32)
