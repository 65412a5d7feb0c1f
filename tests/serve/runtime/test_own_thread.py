"""Calls of an owner are made in one thread."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ox.serve.runtime.own_thread import OwnThread


def test_all_calls_are_made_in_one_thread() -> None:
    own = OwnThread("own")
    with ThreadPoolExecutor(4) as pool:
        idents = set(pool.map(lambda _: own.call(threading.get_ident), range(50)))
    assert len(idents) == 1 and threading.get_ident() not in idents


def test_errors_are_the_callers_and_the_thread_goes_on() -> None:
    own = OwnThread("own")
    with pytest.raises(KeyError, match="gone"):
        own.call(lambda: {}["gone"])
    assert own.call(lambda: 3) == 3


def test_it_ends_with_its_owner() -> None:
    own = OwnThread("own")
    thread = own.call(threading.current_thread)
    del own
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
