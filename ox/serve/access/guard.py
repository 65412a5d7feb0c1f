"""Decides whether a call may go ahead. REST and gRPC ask it the same question."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from ox.clock import Clock
from ox.errors import ServeError
from ox.serve.access.bucket import Bucket
from ox.serve.access.client import Client
from ox.serve.access.file_watcher import FileWatcher
from ox.serve.access.key import Key, digest_of
from ox.serve.access.keyfile import read

MAX_ADDRESSES = 1 << 16  # whose rates are remembered at once
NOBODY = bytes(32)
WAYS = "'Authorization: Bearer KEY' or 'X-API-Key: KEY'"


def _bucket(rate: float, burst: float | None, now: float, share: int) -> Bucket:
    """One guard's part of a rate; its bucket takes a single call at least."""
    return Bucket(rate / share, max(1.0, (burst or rate) / share), now)


class KeyEntry(NamedTuple):
    """A key with what is left of its rates; None for no limit."""

    key: Key
    calls: Bucket | None
    tokens: Bucket | None


class Ring:
    """The keys of one reading of the key file, found by their hashes."""

    def __init__(self, keys: list[Key], now: float, share: int) -> None:
        # A lookup by a part of the hash leaks no timing: a client cannot choose hashes.
        self._keys: dict[bytes, KeyEntry] = {}
        for key in keys:
            calls = None if key.rate is None else _bucket(key.rate, key.burst, now, share)
            a_minute = key.tokens_per_minute
            tokens = None if a_minute is None else _bucket(a_minute / 60, a_minute, now, share)
            self._keys[key.digest[:16]] = KeyEntry(key, calls, tokens)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, credential: bytes) -> KeyEntry | None:
        digest = digest_of(credential)
        entry = self._keys.get(digest[:16])
        same = hmac.compare_digest(digest, NOBODY if entry is None else entry.key.digest)
        return entry if same else None


class Guard:
    """Keys, permissions and rates.

    Args:
        keys: a key file; None lets everybody in.
        rate: calls per second of one client address, for keys without their own rate; None for no limit.
        manage: whether calls that change the server (load, unload, shared memory, log and trace settings) are open to
            everybody. Whoever has a key needs the action "manage" in it.
        share: how many guards of several processes let calls through together; each grants its part of every rate.
        clock: of the rates, and by its calendar keys expire.
    """

    def __init__(
        self,
        keys: str | Path | None = None,
        rate: float | None = None,
        manage: bool = False,
        share: int = 1,
        *,
        clock: Clock,
    ) -> None:
        self._now, self._calendar = clock.now, clock.calendar
        self._rate, self._manage, self._share = rate, manage, share
        self._addresses: OrderedDict[str, Bucket] = OrderedDict()
        self._ring: FileWatcher[Ring] | None = None
        if keys is not None:
            path = Path(keys)
            self._ring = FileWatcher("keys", [path], lambda: Ring(read(path), clock.now(), share), clock.now())

    @property
    def open(self) -> bool:
        """Whether everything but management goes ahead unasked: a hot path need not ask then."""
        return self._ring is None and self._rate is None

    def locked(self) -> str | None:
        """A warning if keys are required and the key file has no valid key."""
        if self._ring is None or len(self._ring.get(self._now())):
            return None
        return "warning: the key file has no valid keys, so all requests are refused; add one with ox keys new"

    def check(self, credential: bytes | None, action: str, model: str, peer: str) -> str:
        """The name of the key that may do this; "" where no key is needed.

        Args:
            credential: from `credential_of`.
            action: one of "infer", "read", "manage", "metrics".
            model: its name; "*" for a call about all of them, "" for one about none.
            peer: the client's address.

        Raises:
            ServeError: no valid key (401), one that may not do this (403), or rate limit exceeded (429).
        """
        now = self._now()
        if self._ring is None:
            if self._rate is not None:
                self._pace(self._address(peer, now), now)
            if action == "manage" and not self._manage:
                raise ServeError(
                    "management calls are disabled", status=403, hint="ox serve --manage, or --keys with such a key"
                )
            return ""
        key, calls, _ = self._authenticate(self._ring, credential, peer, now)
        if calls is not None:
            self._pace(calls, now)
        elif self._rate is not None:
            self._pace(self._address(peer, now), now)
        if not key.may(action, model):
            about = f" for model '{model[:100]}'" if model not in ("", "*") else " for all models" if model else ""
            raise ServeError(f"the key '{key.name}' does not permit '{action}'{about}", status=403)
        return key.name

    def admit(self, credential: bytes | None, peer: str) -> None:
        """Looks at a key alone, before a long message is read.

        Raises:
            ServeError: no valid key where one is needed (401), or too many tries (429).
        """
        if self._ring is not None:
            self._authenticate(self._ring, credential, peer, self._now())

    def client(self, credential: bytes | None, peer: str) -> Client:
        """Who sends a request that `check` let through; it is not counted again.

        Raises:
            ServeError: no valid key where one is needed (401).
        """
        if self._ring is None:
            return Client(peer)
        entry = self._authenticate(self._ring, credential, peer, self._now())
        return Client(entry.key.name, entry.key, entry.tokens)

    def _authenticate(self, ring: FileWatcher[Ring], credential: bytes | None, peer: str, now: float) -> KeyEntry:
        entry = None if credential is None else ring.get(now).find(credential)
        if entry is None or entry.key.expired(self._calendar()):
            if self._rate is not None:  # clients that try keys have the same rate limit
                self._pace(self._address(peer, now), now)
            if credential is None:
                raise ServeError("an API key is required", status=401, expected=WAYS)
            what = "unknown key" if entry is None else f"the key '{entry.key.name}' has expired"
            raise ServeError(what, status=401, hint="ox keys new")
        return entry

    def _address(self, peer: str, now: float) -> Bucket:
        assert self._rate is not None
        name = _network(peer)
        bucket = self._addresses.get(name)
        if bucket is None:
            if len(self._addresses) >= MAX_ADDRESSES:
                self._addresses.popitem(last=False)  # that was silent for longest, so most likely is full again
            bucket = self._addresses[name] = _bucket(self._rate, None, now, self._share)
        else:
            self._addresses.move_to_end(name)
        return bucket

    @staticmethod
    def _pace(bucket: Bucket, now: float) -> None:
        wait = bucket.take(now)
        if wait:
            expected = f"at most {bucket.rate:g} a second"
            raise ServeError("rate limit exceeded", status=429, retry_after=wait, expected=expected)


def credential_of(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key that a request or a call brings, from its headers or metadata (names in lower case)."""
    bearer = headers.get(b"authorization")
    if bearer is not None and bearer[:7].lower() == b"bearer ":
        return bearer[7:].strip()
    return headers.get(b"x-api-key")


def _network(peer: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 of an IPv6 one, of which anybody has all."""
    if ":" not in peer:
        return peer
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))
