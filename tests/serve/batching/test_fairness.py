"""Cores among models: time by weight, nobody held up who is alone."""

from __future__ import annotations

import threading
from collections import Counter

from manual_clock import ManualClock

from ox.serve.batching.fairness import CREDIT_S, Cores, Share


def turns(cores: Cores, shares: dict[str, Share], costs: dict[str, float], count: int) -> Counter[str]:
    """Who gets the cores, while two threads of each share want them all the time. Time is what a run says it took."""
    got: Counter[str] = Counter()
    order: list[str] = []
    done = threading.Event()
    lock = threading.Lock()
    waiting = threading.Semaphore(0)

    def work(name: str) -> None:
        while not done.is_set():
            waiting.release()
            shares[name].acquire()
            with lock:
                got[name] += 1
                order.append(name)
                if len(order) >= count:
                    done.set()
            shares[name].release(costs[name])

    hold = Share(cores, 1.0, cores.slots)
    cores.acquire(hold)  # until everybody stands in line
    threads = [threading.Thread(target=work, args=(name,)) for name in shares for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        waiting.acquire()
    cores.release(hold, 0.0)
    for thread in threads:
        thread.join(120)
    return got


def opened(cores: Cores, **weights: float) -> dict[str, Share]:
    shares = {name: cores.share(weight, 1) for name, weight in weights.items()}
    for share in shares.values():
        share.open()
    return shares


def test_time_rather_than_turns() -> None:
    cores = Cores(1, ManualClock(), 60.0)
    got = turns(cores, opened(cores, slow=1.0, quick=1.0), {"slow": 0.05, "quick": 0.01}, 600)
    assert 3.5 < got["quick"] / got["slow"] < 6.5


def test_by_weight() -> None:
    cores = Cores(1, ManualClock(), 60.0)
    got = turns(cores, opened(cores, heavy=3.0, light=1.0), {"heavy": 0.01, "light": 0.01}, 600)
    assert 2.2 < got["heavy"] / got["light"] < 3.8


def test_who_was_idle_has_saved_up_nothing() -> None:
    cores = Cores(1, ManualClock(), 60.0)
    shares = opened(cores, busy=1.0, late=1.0)
    for _ in range(1000):
        assert shares["busy"].acquire()
        shares["busy"].release(1.0)
    got = turns(cores, shares, {"busy": 1.0, "late": 1.0}, 100)
    assert got["busy"] >= 40


def test_a_model_alone_is_not_asked() -> None:
    cores = Cores(1, ManualClock(), 60.0)
    only = cores.share(1.0, 1)
    only.open()
    assert not only.acquire() and cores.free == 1
    other = cores.share(1.0, 1)
    other.open()
    assert only.acquire() and cores.free == 0
    only.release(0.1)
    other.close()
    assert not only.acquire() and cores.free == 1


def test_a_run_of_many_threads_takes_as_many_slots() -> None:
    clock = ManualClock()
    cores = Cores(4, clock, 60.0)
    shares = [cores.share(1.0, threads) for threads in (3, 1, 9)]
    for share in shares:
        share.open()
    assert shares[0].acquire() and cores.free == 1
    assert shares[1].acquire() and cores.free == 0
    shares[0].release(0.1)
    shares[1].release(0.1)
    assert shares[2].slots == 4 and shares[2].acquire() and cores.free == 0  # no more than there are
    entered = threading.Event()
    thread = threading.Thread(target=lambda: (shares[1].acquire(), entered.set()))
    thread.start()
    clock.until_waiting()
    assert not entered.is_set()
    shares[2].release(0.1)
    assert entered.wait(120)
    thread.join()


def test_beside_a_run_that_takes_for_ever_nobody_waits_for_long() -> None:
    clock = ManualClock()
    cores = Cores(1, clock, 0.01)
    shares = opened(cores, endless=1.0, quick=1.0)
    assert shares["endless"].acquire()
    for _ in range(3):
        thread = threading.Thread(target=shares["quick"].acquire)
        thread.start()
        clock.until_waiting()
        clock.advance(0.01)
        thread.join(120)
        assert not thread.is_alive() and cores.free == -1  # though nothing was released
        shares["quick"].release(0.001)
    shares["endless"].release(1.0)
    assert cores.free == 1 and not cores._waiters


def test_the_moment_between_two_runs_costs_a_model_nothing() -> None:
    """Its threads deliver what they ran before they ask again, and others are let in meanwhile."""
    cores = Cores(1, ManualClock(), 60.0)
    shares = opened(cores, large=1.0, small=1.0)
    for rounds in range(1, 101):
        for name, seconds in (("large", 0.03), ("small", 0.001)):
            assert shares[name].acquire()
            shares[name].release(seconds)
        behind = shares["large"].vruntime - shares["small"].vruntime
        if rounds == 3:
            assert 0.08 < behind < 0.1  # all of it is still owed
    assert 0.1 < behind < CREDIT_S + 0.04  # but nobody saves up for ever
