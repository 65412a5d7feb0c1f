"""Handles that threads hand on when they end."""

from __future__ import annotations

from threading import Thread

from ox.devices.gpu.thread_handles import ThreadHandles


def test_a_thread_tries_again_what_failed_in_another() -> None:
    made = iter([None, "one", "two"])
    handles = ThreadHandles(lambda: next(made))
    used = []
    for _ in range(3):
        thread = Thread(target=lambda: used.append(handles.of_thread()[0]))
        thread.start()
        thread.join()
    assert used == [None, "one", "one"]
