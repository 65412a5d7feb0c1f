"""Clients that never rest, and the book that is kept of every request."""

from __future__ import annotations

import random
from collections import Counter
from time import perf_counter
from typing import Any

from cases import BUSY, Case, status, succeeded

from ox.bench.address import Address
from ox.bench.answer import Reply
from ox.bench.client import Client
from ox.bench.grpc import GrpcClient
from ox.bench.http1 import HttpClient
from ox.bench.pool import Closed


class Failed(Exception):
    """What the soak found."""


class Book:
    """sent = right answers + right errors + busy + wrong + lost."""

    def __init__(self, stop: float) -> None:
        self.start, self.stop = 0.0, stop
        self.sent = self.reconnects = 0
        self.answers: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.unsent: Counter[str] = Counter()  # connections that could not be had: nothing was asked
        self.excused: Counter[str] = Counter()  # lost, and nobody's fault: with a process that was killed
        self.spared = float("inf"), float("inf")  # requests that were out between these times may be lost

    # what ox.bench's clients call

    def right(self, meant: float, now: float) -> None:
        return  # counted by case

    def failed(self, meant: float, kind: str, example: str = "") -> None:
        if kind == "connect":
            self.unsent[kind] += 1
        elif kind.startswith("wrong"):
            self.wrong[f"{kind} {example}"[:400]] += 1
        elif kind == "closed" and self.spared[0] <= meant <= self.spared[1]:
            self.excused[kind] += 1
        else:
            self.lost[f"{kind} {example}"[:200]] += 1

    def fold(self) -> None:
        return

    def balance(self) -> int:
        """0 when every request is accounted for."""
        books = (self.answers, self.errors, self.busy, self.lost, self.wrong, self.excused)
        return self.sent - sum(book.total() for book in books)

    def merge(self, other: Book) -> None:
        self.sent += other.sent
        self.reconnects += other.reconnects
        for name in ("answers", "errors", "busy", "lost", "wrong", "unsent", "excused"):
            getattr(self, name).update(getattr(other, name))

    def lines(self) -> list[str]:
        """Short where all is well, everything where it is not."""
        found = [f"sent {self.sent:,}: right {self.answers.total():,}, right errors {self.errors.total():,}"]
        if self.busy:
            found.append(f"busy: {dict(self.busy)}")
        if self.excused or self.unsent:
            found.append(f"with a process that went: {dict(self.excused)}, no connection: {dict(self.unsent)}")
        for name, book in (("LOST", self.lost), ("WRONG", self.wrong)):
            found += [f"{name} {count} x {what}" for what, count in book.most_common(12)]
        if self.balance():
            found.append(f"without an outcome: {self.balance()}")
        return found

    @property
    def good(self) -> bool:
        return not self.lost and not self.wrong and not self.balance() and self.busy.total() <= self.sent / 100


class Asks(Client):
    def answered(self, reply: Reply) -> None:
        self.pool.judge.asked = self.meant
        super().answered(reply)

    def fail(self, kind: str, example: str = "") -> None:
        """A connection that ends before anything was asked is one that could not be had."""
        super().fail(kind if self.sent else "connect", example)


class AsksHttp(Asks, HttpClient):
    pass


class AsksGrpc(Asks, GrpcClient):
    pass


class Bookkeeper:
    """Holds each answer against its case, and books it."""

    def __init__(self, cases: list[Case], book: Book) -> None:
        self.cases, self.book = cases, book
        self.known = [b"\0 no answer is ever taken for known"] * len(cases)
        self.asked = 0.0  # when the request left whose answer is looked at

    def problem(self, place: int, reply: Reply) -> str | None:
        case = self.cases[place]
        try:
            problem = case.judge(reply, self.asked)
        except Exception as error:  # an answer of a form that nobody foresaw is a wrong one
            problem = f"{type(error).__name__}: {error}, {reply.body[:100]!r}"
        if problem is None:
            (self.book.answers if succeeded(reply) else self.book.errors)[case.name] += 1
        elif status(reply) in BUSY:
            self.book.busy[status(reply)] += 1
            problem = None
        return problem and f"wrong: {case.name}: {problem}"


class Crowd(Closed):
    """Each client draws a case, sends it, waits, draws the next."""

    http, grpc = AsksHttp, AsksGrpc

    def __init__(self, address: Address, cases: list[Case], book: Book, count: int) -> None:
        model_manager: Any = Bookkeeper(cases, book)
        recorder: Any = book
        super().__init__(address, [case.request for case in cases], model_manager, recorder, count, 30.0)
        self.book = book
        self.random = random.Random(address.grpc)

    def free(self, client: Client) -> None:
        now = perf_counter()
        if now < self.book.stop and not client.lost:
            self.book.sent += 1
            client.ask(self.random.randrange(len(self.requests)), now)
