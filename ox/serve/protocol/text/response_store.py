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

MAX_RESPONSES = 4096  # none counts as less than this part of the store
MEMORY = ":memory:"
FOUND = "one that was stored ('store' in it is true), has not expired, and was not evicted from a full store"
LOCKED_S = 1.0  # for which another process may hold the file
SETUP = (
    "PRAGMA synchronous=OFF",  # the file does not outlive the server
    "PRAGMA secure_delete=FAST",  # the event loop waits, and zeros over a large response take five times as long
    """CREATE TABLE IF NOT EXISTS responses (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, owner TEXT, expires REAL, size INTEGER,
        document BLOB, input BLOB, context BLOB)""",
    "CREATE INDEX IF NOT EXISTS ends ON responses (expires)",
    "CREATE INDEX IF NOT EXISTS ages ON responses (owner, number)",
    # adding up thousands of rows would take longer than all the rest of an insertion
    "CREATE TABLE IF NOT EXISTS totals (owner TEXT PRIMARY KEY, size INTEGER)",
    """CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON responses BEGIN
        INSERT OR IGNORE INTO totals VALUES (NEW.owner, 0);
        UPDATE totals SET size = size + NEW.size WHERE owner = NEW.owner; END""",
    """CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON responses BEGIN
        UPDATE totals SET size = size - OLD.size WHERE owner = OLD.owner;
        DELETE FROM totals WHERE owner = OLD.owner AND size = 0; END""",
)
INSERT = """INSERT INTO responses (id, owner, expires, size, document, input, context)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
SELECT = "SELECT document, input, context FROM responses WHERE id = ? AND owner = ? AND expires > ?"
OLDEST = "SELECT number, size FROM responses WHERE owner = ? ORDER BY number LIMIT 1"
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
    """A bounded store: what is too old is removed, and while it is full the oldest response of the owner who has most,
    so that nobody takes the room of those who have less.

    A response is found only by the owner who stored it; to others it does not exist. Large ones take long, and another
    process may hold the file: use it in threads.

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

    def fits(self, size: int) -> bool:
        """Whether a response of so many bytes may be stored."""
        return self.enabled and size <= self._max_bytes

    def get(self, identifier: str, owner: str) -> StoredResponse | None:
        """A response of this owner; None if there is none, or no more.

        Raises:
            ServeError: the file cannot be read (503).
        """
        with self._lock, _readable():
            row = self._database.execute(SELECT, (identifier, owner, self._calendar())).fetchone()
        return None if row is None else StoredResponse(*row)

    def put(self, identifier: str, owner: str, response: StoredResponse) -> bool:
        """Stores a response; False if it alone is larger than the store or what other owners leave of it, or the file
        cannot be written."""
        size = max(sum(map(len, response)), -(-self._max_bytes // MAX_RESPONSES))
        if size > self._max_bytes:
            return False
        now = self._calendar()
        values = (identifier, owner, now + self._seconds, size, *response)
        try:
            with self._lock, self._database as transaction:
                transaction.execute("BEGIN IMMEDIATE")
                transaction.execute("DELETE FROM responses WHERE expires <= ?", (now,))
                number = transaction.execute(INSERT, values).lastrowid
                return number not in self._evict(transaction)
        except sqlite3.Error as error:  # a full disk, or another process that holds the file: the answer is not lost
            log.warning("a response was not stored: %s", error)
            return False

    def _evict(self, transaction: sqlite3.Connection) -> list[int]:
        """Removes responses until the others fit; returns their numbers."""
        sizes = dict(transaction.execute("SELECT owner, size FROM totals"))
        total, removed = sum(sizes.values()), []
        while total > self._max_bytes:
            owner = max(sizes, key=sizes.__getitem__)
            number, size = transaction.execute(OLDEST, (owner,)).fetchone()
            transaction.execute("DELETE FROM responses WHERE number = ?", (number,))
            removed.append(number)
            sizes[owner], total = sizes[owner] - size, total - size
        return removed

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
