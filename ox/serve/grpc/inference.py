"""ModelInfer: from a message's bytes to its answer's. ModelStreamInfer does the same many times (stream.py)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from time import perf_counter

from ox.errors import OxError, ServeError
from ox.serve.access import Guard, credential_of
from ox.serve.answer_memory import LARGE, Body
from ox.serve.batching.job import Job
from ox.serve.grpc.answer import Writer
from ox.serve.grpc.plan import Plan
from ox.serve.grpc.proto import message
from ox.serve.grpc.rpc import Rpc, failure
from ox.serve.grpc.wire import Layout, Parts, layout_of, parse, split
from ox.serve.limits import Limits
from ox.serve.service import Service
from ox.serve.v2.request import Request

log = logging.getLogger("ox.serve")

MOST_PLANS, LONGEST_HEAD = 256, 2048  # what is remembered of requests that others may look like
MOST_SEQUENCE_PLANS = 1024  # of requests that only others of their sequence look like


class Inference:
    """Has a service's models answer requests.

    Args:
        service: whose models.
        limits: how much a client may send and get.
        guard: who may; None for everybody.
    """

    def __init__(self, service: Service, limits: Limits, guard: Guard | None) -> None:
        self._repository, self._regions, self._most = service.repository, service.regions, limits.json
        self._check = None if guard is None or guard.open else guard.check
        self._plans: dict[bytes, Plan] = {}
        self._sequence_plans: dict[bytes, Plan] = {}  # beside them, because there is no end of sequences
        self._layouts: dict[int, Layout] = {}  # by the length of such requests
        self._request = message("inference.ModelInferRequest")
        self.writer = Writer(limits.reply)
        self._repository.changed.append(self._forget)

    def infer(self, body: bytes, rpc: Rpc) -> None:
        """ModelInfer."""
        try:
            layout = self._layouts.get(len(body))
            if layout is not None and body.startswith(layout.start):
                parts = layout.parts
            else:
                parts = split(body)
            job = Unary(self.writer, rpc, rpc.arrived, self.read(body, parts, rpc, rpc.arrived))
            rpc.on_abandon = job.abandon
            self.submit(job)
        except OxError as error:
            rpc.fail(*failure(error))
        except Exception:
            rpc.fail(*broken())

    def read(self, body: bytes, parts: Parts, rpc: Rpc, received: float) -> Request:
        """A request, checked and complete.

        Raises:
            ServeError: it is wrong, or not allowed.
        """
        plan = self._plans.get(parts.head) or self._sequence_plans.get(parts.head)
        if plan is None:
            return self._first(body, parts, rpc, received)
        if self._check is not None:
            self._check(credential_of(rpc.metadata), "infer", plan.model.name, rpc.peer)
        try:
            return plan.read(body, parts)
        except ServeError as error:
            plan.model.stages.failed(error, received, rpc.metadata)
            raise

    def submit(self, job: Pending) -> None:
        """Has a request run.

        Raises:
            ServeError: it is one too many.
        """
        try:
            job.plan.model.submit(job)
        except ServeError as error:
            job.plan.model.stages.failed(error, job.received, job.rpc.metadata)
            raise

    def _first(self, body: bytes, parts: Parts, rpc: Rpc, received: float) -> Request:
        """The careful way, which remembers what it can."""
        head = parts.head
        if len(head) > self._most:
            raise ServeError(
                "the request is too large",
                status=413,
                expected=f"at most {self._most} bytes beside raw_input_contents (--limit json)",
                got=str(len(head)),
                hint="fewer rows, or sending the tensors as raw_input_contents",
            )
        asked = parse(self._request, head, self._most)
        if self._check is not None:
            self._check(credential_of(rpc.metadata), "infer", asked.model_name, rpc.peer)
        model = self._repository.find(asked.model_name, asked.model_version)
        try:
            plan = Plan(model, asked, self._regions)
            request = plan.read(body, parts)
        except ServeError as error:
            model.stages.failed(error, received, rpc.metadata)
            raise
        if not plan.lasting or len(head) > LONGEST_HEAD:
            return request
        if "sequence_id" in plan.parameters:
            if len(self._sequence_plans) >= MOST_SEQUENCE_PLANS:
                self._sequence_plans.clear()
            self._sequence_plans[head] = plan
        else:
            if len(self._plans) >= MOST_PLANS:
                self._forget()
            self._plans[head] = plan
            layout = layout_of(body, parts)
            if layout is not None:
                self._layouts[len(body)] = layout
        return request

    def _forget(self) -> None:
        self._plans.clear()
        self._sequence_plans.clear()
        self._layouts.clear()


class Pending(Job, ABC):
    """A job whose outcome answers a request that was `received` in a call."""

    __slots__ = ("_writer", "plan", "received", "rpc")

    def __init__(self, writer: Writer, rpc: Rpc, received: float, request: Request) -> None:
        super().__init__(request)
        self._writer, self.rpc, self.received = writer, rpc, received
        self.plan: Plan = request.form
        deadline = rpc.deadline
        if deadline is not None and (self.deadline is None or deadline < self.deadline):
            self.deadline = deadline

    def abandon(self) -> None:
        if not self.abandoned:  # else it is counted already
            super().abandon()
            self.plan.model.stages.failed(None, self.received, self.rpc.metadata)

    def done(self) -> None:
        if self.abandoned:
            return
        stages = self.plan.model.stages
        error: OxError | None = self.error
        if error is None:
            begun = perf_counter()
            try:
                answer = self._writer.write(self.request, self.outputs)
                if len(answer) >= LARGE:
                    answer = self.plan.model.answers.counted(answer)
            except ServeError as wrong:
                error = wrong
            except Exception as wrong:  # nobody above could still tell this client
                stages.failed(wrong, self.received, self.rpc.metadata)
                self.refuse(*broken())
                return
            else:
                stages.answered(self.received, self, begun, self.rpc.metadata)
                self.answer(answer)
                return
        stages.failed(error, self.received, self.rpc.metadata)
        self.refuse(*failure(error))

    @abstractmethod
    def answer(self, answer: Body) -> None:
        """Sends the answer."""

    @abstractmethod
    def refuse(self, code: int, text: str) -> None:
        """Sends a status in place of an answer."""


class Unary(Pending):
    """The one request of a call."""

    __slots__ = ()

    def answer(self, answer: Body) -> None:
        self.rpc.send(answer)
        self.rpc.finish()

    def refuse(self, code: int, text: str) -> None:
        self.rpc.fail(code, text)


def broken() -> tuple[int, str]:
    """The status for an exception that is a defect of ours, which is logged."""
    log.exception("a gRPC call failed")
    error = ServeError("the server failed on this request", status=500, hint="its log")
    return failure(error)
