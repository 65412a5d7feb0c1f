"""Earlier responses, for `previous_response_id` and the routes that read and delete them."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ox.clock import Clock
from ox.errors import ServeError

log = logging.getLogger("ox.serve")

MAX_RESPONSES = 4096
MEMORY = ":memory:"
LOCKED_S = 1.0  # for which another process may hold the file
SETUP = (
    "PRAGMA synchronous=OFF",  # the file does not outlive the server
    "PRAGMA secure_delete=ON",
    """CREATE TABLE IF NOT EXISTS responses (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, owner TEXT, expires REAL, size INTEGER,
        document BLOB, input BLOB, context BLOB)""",
    "CREATE INDEX IF NOT EXISTS ends ON responses (expires)",
    # adding up thousands of rows would take longer than all the rest of an insertion
    "CREATE TABLE IF NOT EXISTS totals (count INTEGER, size INTEGER)",
    "INSERT INTO totals SELECT 0, 0 WHERE NOT EXISTS (SELECT 1 FROM totals)",
    """CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON responses
        BEGIN UPDATE totals SET count = count + 1, size = size + NEW.size; END""",
    """CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON responses
        BEGIN UPDATE totals SET count = count - 1, size = size - OLD.size; END""",
)
INSERT = """INSERT INTO responses (id, owner, expires, size, document, input, context)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
SELECT = "SELECT document, input, context FROM responses WHERE id = ? AND owner = ? AND expires > ?"
DELETE = "DELETE FROM responses WHERE id = ? AND owner = ? AND expires > ?"


class StoredResponse(NamedTuple):
    """A response, all parts as JSON.

    Attributes:
        document: the response object, whose output ends the conversation.
        input: the list of its input items.
        context: the list of the items of the conversation before its input.
    """

    document: bytes
    input: bytes
    context: bytes


class ResponseStore:
    """A bounded store: what is too old is removed, and then the oldest responses while there are too many.

    A response is found only by the owner who stored it; to others it does not exist.

    Args:
        path: an SQLite file that several processes share, or `MEMORY`.
        max_bytes: of all responses together; 0 stores none.
        seconds: for how long one is stored.
        clock: by whose calendar they expire.

    Raises:
        ServeError: the file cannot be opened (503).
    """

    def __init__(self, path: Path | str, max_bytes: int, seconds: float, clock: Clock) -> None:
        self._max_bytes, self._seconds, self._calendar = max_bytes, seconds, clock.calendar
        self._lock = threading.Lock()  # long requests are read in threads
        with _readable():
            self._database = sqlite3.connect(path, timeout=LOCKED_S, isolation_level=None, check_same_thread=False)
            for statement in SETUP:
                self._database.execute(statement)

    @property
    def enabled(self) -> bool:
        """Whether anything is stored."""
        return self._max_bytes > 0

    def get(self, identifier: str, owner: str) -> StoredResponse | None:
        """A response of this owner; None if there is none, or no more.

        Raises:
            ServeError: the file cannot be read (503).
        """
        with self._lock, _readable():
            row = self._database.execute(SELECT, (identifier, owner, self._calendar())).fetchone()
        return None if row is None else StoredResponse(*row)

    def put(self, identifier: str, owner: str, response: StoredResponse) -> bool:
        """Stores a response; False if it alone is larger than the store, or the file cannot be written."""
        size = sum(map(len, response))
        if size > self._max_bytes:
            return False
        now = self._calendar()
        values = (identifier, owner, now + self._seconds, size, *response)
        try:
            with self._lock, self._database as transaction:
                transaction.execute("BEGIN IMMEDIATE")
                transaction.execute("DELETE FROM responses WHERE expires <= ?", (now,))
                transaction.execute(INSERT, values)
                self._evict(transaction)
        except sqlite3.Error as error:  # a full disk, or another process that holds the file: the answer is not lost
            log.warning("a response was not stored: %s", error)
            return False
        return True

    def _evict(self, transaction: sqlite3.Connection) -> None:
        """Removes the oldest responses until the others fit."""
        count, total = transaction.execute("SELECT count, size FROM totals").fetchone()
        oldest = transaction.execute("SELECT number, size FROM responses ORDER BY number")
        removed = []
        while count > MAX_RESPONSES or total > self._max_bytes:
            number, size = oldest.fetchone()
            removed.append((number,))
            count, total = count - 1, total - size
        oldest.close()
        transaction.executemany("DELETE FROM responses WHERE number = ?", removed)

    def delete(self, identifier: str, owner: str) -> bool:
        """Removes a response of this owner; False if there is none. Raises as `get`."""
        with self._lock, _readable():
            return self._database.execute(DELETE, (identifier, owner, self._calendar())).rowcount > 0

    def close(self) -> None:
        """Closes the database; those in memory are gone."""
        with self._lock:
            self._database.close()


@contextmanager
def _readable() -> Iterator[None]:
    """What SQLite raises is an error for clients."""
    try:
        yield
    except sqlite3.Error as error:
        raise ServeError("the stored responses cannot be read", status=503, got=str(error)) from error
