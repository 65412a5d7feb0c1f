"""Runs a load test: reads the model's metadata, requests the reference responses, then measures each step."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ox.bench import completions, sequences
from ox.bench.address import Address, parse
from ox.bench.answer import OK, Reply, read, verify
from ox.bench.inputs import InputArrays, draw
from ox.bench.inputs import read as read_data
from ox.bench.model import Model
from ox.bench.plan import DRAWN, Plan, refuse
from ox.bench.queries import QueryClient, unreachable
from ox.bench.request import build
from ox.bench.result import Result, Step
from ox.errors import ArgumentError, ServeError

ROOT = Path(__file__).resolve().parents[2]  # where a worker finds this package, installed or not


def run(
    url: str,
    plan: Plan | None = None,
    *,
    model: str | None = None,
    data: str | Path | None = None,
    key: str | None = None,
    show: Callable[[str], None] = lambda line: None,
) -> Result:
    """Runs a load test and returns its result.

    Args:
        url: http://, https://, grpc:// or grpcs://, host and port; or unix:PATH, grpc+unix:PATH.
        plan: what to measure.
        model: its name; None for the server's first one.
        data: inputs of one request, .json or .npz, or prompts in lines; None: random ones.
        key: an API key or bearer token.
        show: gets a line when a step begins.

    Raises:
        ArgumentError: the URL, the plan or the data cannot be used.
        ServeError: the server is not there, does not know the model, or answers the first request with an error or
            with something that its own metadata does not promise.
    """
    plan = plan or Plan()
    if data is not None:
        refuse(plan, DRAWN, "is for random inputs, and there are data")
    address = parse(url, key)
    queries = QueryClient(address, plan.timeout)
    prepare = _text_load if plan.text else _tensor_load
    task, result = prepare(queries, plan, model, None if data is None else Path(data), show)
    steps: list[tuple[int, float | None]] = [(plan.clients[0], rate) for rate in plan.rates]
    steps = steps or [(count, None) for count in plan.clients]
    for clients, rate in steps:
        show(f"{clients} client{'s' * (clients > 1)}" if rate is None else f"{rate:g} requests/s")
        step = Step(clients, rate, plan.seconds)
        for share in share_out(task, clients, rate, plan.processes, address):
            step.merge(share)
        result.steps.append(step)
    return result


def _tensor_load(
    queries: QueryClient, plan: Plan, name: str | None, data: Path | None, show: Callable[[str], None]
) -> tuple[dict[str, Any], Result]:
    address = queries.address
    model, names = queries.model(name)
    if len(names) > 1:
        show(f"{model.name}, the first of {', '.join(names)}")
    feeds = draw(model, plan.rows, dict(plan.shapes)) if data is None else read_data(data, model)
    parameters = sequences.PARAMETERS if plan.sequence else None
    requests = [build(address, model, feed, plan.binary, parameters) for feed in feeds]
    alone = requests
    if plan.sequence:
        step, ids = sequences.grpc_step if address.grpc else sequences.http_step, sequences.new_ids()
        alone = [step(request, next(ids), True, True) for request in requests]
    known = [_first(queries, model, request) for request in alone]
    result = Result(address.url, model.name, _describe(model, feeds[0]), len(requests[0]), plan)
    tensors = {
        "model": model.name,
        "inputs": [(t.name, t.datatype, t.shape) for t in model.inputs],
        "outputs": [(t.name, t.datatype, t.shape) for t in model.outputs],
        "requests": [base64.b64encode(request).decode() for request in requests],
        "known": [(reply.status, base64.b64encode(reply.body).decode(), reply.json_length) for reply in known],
        "check": plan.check,
        "sequence": plan.sequence,
    }
    return {**_task(address, plan), **tensors}, result


def _text_load(
    queries: QueryClient, plan: Plan, name: str | None, data: Path | None, show: Callable[[str], None]
) -> tuple[dict[str, Any], Result]:
    address = queries.address
    if address.grpc:
        raise ArgumentError("texts are measured over HTTP", expected="http://, https:// or unix:PATH", got=address.url)
    texts = completions.prompts(plan.prompt_words, data)
    model, names = completions.find_model(queries, name)
    if len(names) > 1:
        show(f"{model}, the first of {', '.join(names)}")
    requests = [completions.build(address, model, text, plan.max_tokens) for text in texts]
    sent = completions.probe(queries, model, requests[0])
    requests_as_text = {"text": True, "requests": [base64.b64encode(request).decode() for request in requests]}
    return {**_task(address, plan), **requests_as_text}, Result(address.url, model, sent, len(requests[0]), plan)


def _first(queries: QueryClient, model: Model, request: bytes) -> Reply:
    """The reference response to a request, from a server without other load."""
    reply = queries.infer(request)
    message = reply.body[:300].decode("utf-8", "replace")
    if reply.failure is not None or reply.status != OK:
        got = f"{reply.failure or f'HTTP {reply.status}'}: {message}"
        hint = "--sequence 20" if "correlation ID" in message else "--data FILE"
        if any(tensor.name == "text_input" for tensor in model.inputs):
            hint = "--text"
        raise ServeError(f"{model.name} refuses the first request", where=queries.address.url, got=got, hint=hint)
    try:
        wrong = verify(model, read(reply, queries.address.grpc))
    except (ValueError, KeyError, TypeError) as error:
        wrong = f"it cannot be read: {error}"
    if wrong is not None:
        raise ServeError(f"{model.name}'s first response does not match its metadata", got=wrong)
    return reply


def _task(address: Address, plan: Plan) -> dict[str, Any]:
    return {
        "address": asdict(address),
        "timeout": plan.timeout,
        "arrivals": plan.arrivals,
        "warmup": plan.warmup,
        "seconds": plan.seconds,
    }


def share_out(
    task: dict[str, Any], clients: int, rate: float | None, parts: int, address: Address
) -> list[dict[str, Any]]:
    """Runs a step in `parts` processes of this interpreter; a request's bytes travel over their standard input."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    workers = []
    try:
        for part in range(parts):
            count = clients // parts + (part < clients % parts)
            mine = {**task, "clients": count, "rate": rate, "part": part, "parts": parts}
            worker = subprocess.Popen(
                [sys.executable, "-m", "ox.bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            workers.append(worker)
            _write_line(worker, json.dumps(mine))
        for worker in workers:
            line = _read_line(worker)
            if line != "ready":
                raise unreachable(address, OSError(json.loads(line)["unreachable"]))
        for worker in workers:
            _write_line(worker, "go")
        return [json.loads(_read_line(worker)) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _write_line(worker: subprocess.Popen[str], line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line + "\n")
    worker.stdin.flush()


def _read_line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise ServeError("a process of the load generator ended", got=f"exit code {worker.wait()}")
    return line.strip()


def _describe(model: Model, feed: InputArrays) -> str:
    parts = [f"{t.name} {t.datatype} {list(feed[t.name].shape)}" for t in model.inputs]
    return ", ".join(parts)
