"""Results that are there later: what a communication hook returns. `torch.futures`.

Functions given to `then` run in the thread that waits for their result, in order, not when the result arrives: so the
collectives that they start have one order on all ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ox.errors import ArgumentError

T = TypeVar("T")
S = TypeVar("S")

__all__ = ["Future", "collect_all", "wait_all"]


class Future(Generic[T]):
    """A value that is set later, by `set_result` or `set_exception`. `torch.futures.Future`.

    Args:
        devices: accepted for PyTorch's scripts.
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._condition = threading.Condition()
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def done(self) -> bool:
        """Whether `wait` would not have to wait for another thread or rank."""
        return self._done

    def wait(self) -> T:
        """Wait for the value, and return it.

        Raises:
            the exception that was set instead.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> T:
        """The value of a future that is done.

        Raises:
            ArgumentError: it is not done. Or the exception that was set instead of a value.
        """
        if not self._done:
            raise ArgumentError("a future has no value yet", expected="one that is done", hint="future.wait()")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[no-any-return]

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future whose value is ``callback(self)``, computed by who first waits for it."""
        return _Then(self, callback)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call ``callback(self)`` as soon as the value is set; at once if it is there."""
        with self._condition:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def set_result(self, result: T) -> None:
        """Set the value.

        Raises:
            ArgumentError: it was set before.
        """
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Let `wait` and `value` raise this exception.

        Raises:
            ArgumentError: a value was set before, or this is not an exception.
        """
        if not isinstance(result, BaseException):
            raise ArgumentError("set_exception takes an exception", got=type(result).__name__)
        self._set(None, result)

    def _set(self, result: Any, error: BaseException | None) -> None:
        with self._condition:
            if self._done:
                raise ArgumentError("a future has one value", got="a second one")
            self._done, self._result, self._error = True, result, error
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            callback(self)


class _Then(Future[S]):
    """The value of a function of another future."""

    def __init__(self, source: Future[Any], callback: Callable[[Future[Any]], S]) -> None:
        super().__init__()
        self._source, self._callback = source, callback

    def done(self) -> bool:
        return self._done or self._source.done()

    def wait(self) -> S:
        if not self._done:
            try:
                self._source.wait()
            except BaseException:
                if not self._source.done():
                    raise
        return self.value()

    def value(self) -> S:
        if not self._done and self._source.done():
            try:
                self._set(self._callback(self._source), None)
            except Exception as error:
                self._set(None, error)
        return super().value()


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of these futures, whose `wait` waits for all of them. `torch.futures.collect_all`."""
    return _All(futures)


class _All(Future[list[Future[Any]]]):
    def __init__(self, futures: Sequence[Future[Any]]) -> None:
        super().__init__()
        self._futures = list(futures)

    def done(self) -> bool:
        return all(future.done() for future in self._futures)

    def wait(self) -> list[Future[Any]]:
        for future in self._futures:
            try:
                future.wait()
            except Exception:  # for who asks this future for its value
                if not future.done():
                    raise
        return self._futures

    def value(self) -> list[Future[Any]]:
        if not self.done():
            return super().value()
        return self._futures


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The values of these futures. `torch.futures.wait_all`.

    Raises:
        the first exception of one of them.
    """
    return [future.wait() for future in futures]
