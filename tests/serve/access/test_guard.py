"""Who may do what."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from manual_clock import ManualClock
from rows import rows

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve.access import Guard, credential_of, guard, keyfile
from ox.serve.access.guard import Ring
from ox.serve.access.key import Key, digest_of

Make = Callable[..., Guard]
ALICE, BOB, OLD = b"ox_alice", b"ox_bob", b"ox_old"


@pytest.fixture(params=[0.0, 1e9], ids=["just started", "up for years"])
def clock(request: pytest.FixtureRequest) -> ManualClock:
    """The clock of the guard and of all that it makes; a machine's own begins at zero when it starts."""
    return ManualClock(request.param, datetime(2026, 6, 1, tzinfo=UTC).timestamp())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    entries = [
        Key("alice", digest_of(ALICE), ("mlp*",), ("infer", "read"), 10.0, 2),
        Key("bob", digest_of(BOB), ("*",), ("infer", "read", "manage", "metrics")),
        Key("old", digest_of(OLD), expires=datetime(2026, 5, 31, tzinfo=UTC)),
    ]
    keyfile.write(path, entries)
    return path


def status(
    made: Guard, credential: bytes | None, action: str = "infer", model: str = "mlp", peer: str = "1.2.3.4"
) -> Any:
    try:
        return made.check(credential, action, model, peer)
    except ServeError as error:
        return error.status


def test_open_but_for_management() -> None:
    assert (
        Guard(clock=SYSTEM).open
        and status(Guard(clock=SYSTEM), None) == ""
        and status(Guard(clock=SYSTEM), b"anything", "read", "*") == ""
    )
    assert status(Guard(clock=SYSTEM), None, "manage") == 403
    assert status(Guard(manage=True, clock=SYSTEM), None, "manage") == ""
    assert not Guard(rate=5, clock=SYSTEM).open


def test_keys_and_permissions(keys: Path, clock: ManualClock) -> None:
    made = Guard(keys, manage=True, clock=clock)  # which is for those who need no key
    assert not made.open
    assert status(made, ALICE) == "alice" and status(made, ALICE, "read", "mlp2") == "alice"
    clock.advance(10)
    assert status(made, ALICE, "infer", "cnn") == 403 and status(made, ALICE, "manage") == 403
    assert status(made, BOB, "manage", "cnn") == "bob" and status(made, BOB, "metrics", "*") == "bob"


def test_a_look_at_the_key_alone(keys: Path, clock: ManualClock) -> None:
    """It takes nothing of a key's rate, and something of the rate of who has none."""
    made = Guard(keys, rate=1, clock=clock)
    for _ in range(20):
        made.admit(ALICE, "1.2.3.4")
    assert status(made, ALICE) == "alice"
    codes = []
    for credential in (None, b"ox_eve", OLD, b"ox_eve"):
        with pytest.raises(ServeError) as caught:
            made.admit(credential, "1.2.3.4")
        codes.append(caught.value.status)
    assert codes[0] == 401 and codes[-1] == 429
    Guard(clock=clock).admit(None, "1.2.3.4")


@rows("credential", [None, b"", b"ox_", b"ox_alice ", b"ox_alicf", b"\xff\x00" * 5000, OLD])
def test_no_valid_key(keys: Path, clock: ManualClock, credential: bytes | None) -> None:
    assert status(Guard(keys, clock=clock), credential) == 401
    with pytest.raises(ServeError) as caught:
        Guard(keys, clock=clock).check(credential, "infer", "mlp", "")
    assert not credential or credential.decode("latin-1") not in caught.value.one_line()


def test_comparison_is_of_whole_hashes_in_constant_time(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return a == b

    monkeypatch.setattr(guard.hmac, "compare_digest", compare)
    made = Guard(keys, clock=SYSTEM)
    status(made, ALICE)
    status(made, b"unknown")
    assert seen == [(digest_of(ALICE), digest_of(ALICE)), (digest_of(b"unknown"), bytes(32))]
    assert hmac.compare_digest is compare


def test_half_a_hash_is_not_a_key() -> None:
    real = digest_of(ALICE)
    ring = Ring([Key("near", real[:16] + bytes(16))], 0.0, 1)
    assert ring.find(ALICE) is None
    assert Ring([Key("alice", real)], 0.0, 1).find(ALICE) is not None


def test_rate_of_a_key(keys: Path, clock: ManualClock) -> None:
    made = Guard(keys, clock=clock)
    assert [status(made, ALICE, peer=str(n)) for n in range(4)] == ["alice", "alice", 429, 429]
    with pytest.raises(ServeError) as caught:
        made.check(ALICE, "infer", "mlp", "")
    assert caught.value.status == 429 and caught.value.retry_after == pytest.approx(0.1)
    clock.advance(0.11)
    assert [status(made, ALICE) for _ in range(2)] == ["alice", 429]
    assert [status(made, BOB) for _ in range(100)] == ["bob"] * 100


def test_rate_of_an_address(clock: ManualClock) -> None:
    made = Guard(rate=2, clock=clock)
    assert [status(made, None, peer="1.1.1.1") for _ in range(3)] == ["", "", 429]
    assert status(made, None, peer="1.1.1.2") == ""
    clock.advance(0.51)
    assert [status(made, None, peer="1.1.1.1") for _ in range(2)] == ["", 429]


def test_one_network_of_ipv6_is_one_client(clock: ManualClock) -> None:
    made = Guard(rate=1, clock=clock)
    assert status(made, None, peer="2001:db8:1:2::1") == ""
    assert status(made, None, peer="2001:db8:1:2:ffff::9%eth0") == 429
    assert status(made, None, peer="2001:db8:1:3::1") == ""
    assert status(made, None, peer="10.0.0.1") == "" and status(made, None, peer="::ffff:10.0.0.1") == 429
    assert status(made, None, peer="not: an address") == ""


def test_rates_remember_a_bounded_number_of_addresses(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_ADDRESSES", 10)
    made = Guard(rate=1, clock=clock)
    for n in range(1000):
        assert status(made, None, peer="busy") == ("" if n == 0 else 429)  # busy, so never forgotten
        assert status(made, None, peer=str(n)) == ""
    assert len(made._addresses) == 10


def test_whoever_guesses_keys_is_slowed_down(keys: Path, clock: ManualClock) -> None:
    made = Guard(keys, rate=3, clock=clock)
    assert [status(made, b"%d" % n) for n in range(5)] == [401, 401, 401, 429, 429]
    assert status(made, BOB) == 429  # who has no rate of his own shares the address's
    assert status(made, ALICE) == "alice"


def test_rotation(keys: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    made = Guard(keys, clock=clock)
    old = keyfile.read(keys)
    keyfile.write(keys, [*old[1:], Key("carol", digest_of(b"ox_carol"))])
    assert status(made, b"ox_carol") == 401  # looked at once a second
    clock.advance(10**9)
    assert status(made, b"ox_carol") == "carol" and status(made, ALICE) == 401
    keys.write_text("[keys.carol]\nhash = 5\n")
    clock.advance(2)
    assert status(made, b"ox_carol") == "carol" and "the old ones stay: key 'carol' has no hash" in caplog.text
    keys.unlink()
    clock.advance(2)
    assert status(made, b"ox_carol") == "carol"
    keyfile.write(keys, [])
    clock.advance(2)
    assert status(made, b"ox_carol") == 401


@rows(
    ("headers", "credential"),
    [
        ({}, None),
        ({b"authorization": b"Bearer abc"}, b"abc"),
        ({b"authorization": b"bearer  abc "}, b"abc"),
        ({b"authorization": b"Basic abc"}, None),
        ({b"authorization": b"Bearer"}, None),
        ({b"x-api-key": b"abc"}, b"abc"),
        ({b"authorization": b"Basic abc", b"x-api-key": b"def"}, b"def"),
        ({b"authorization": b"Bearer abc", b"x-api-key": b"def"}, b"abc"),
        ({b"authorization": b"Bearer abc, Bearer def"}, b"abc, Bearer def"),
    ],
)
def test_credentials(headers: dict[bytes, bytes], credential: bytes | None) -> None:
    assert credential_of(headers) == credential


def test_several_guards_share_a_rate(clock: ManualClock) -> None:
    guard = Guard(rate=10, share=5, clock=clock)  # one of five workers: two calls a second
    for _ in range(2):
        guard.check(None, "infer", "m", "1.2.3.4")
    with pytest.raises(ServeError) as refused:
        guard.check(None, "infer", "m", "1.2.3.4")
    assert refused.value.status == 429
