"""Compares ox serve with other servers in one run, and writes the table of targets.

    make bench-serve
    python benchmarks/bench_serve.py [--only ox,mosec] [--rounds 3] [--seconds 2] [--envs FOLDER] [--out FILE]

Two models: mlp (64-64-10: the front end is the limit) and cnn (3 x 32 x 32, three convolutions, 30 MFLOP a row), one
row a request. Each peer runs in an environment of its own with its batching on, is asked for a row whose answer is
known, and then loaded by wrk (HTTP/1.1) or h2load (gRPC) over loopback; load and server share the machine. The peers
take turns, the figures are medians over the rounds. Whatever cannot be installed or does not start is named.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

from serving import inprocess, models
from serving.load import Figures, LoadError, missing, put
from serving.peers import PEERS, UNPACKAGED, Peer, install
from serving.process import StartError, serving
from serving.report import Cell, Results, write

ROOT = Path(__file__).parents[1]
IDLE_S = 5.0
SETTLE_S = 1.0  # between load and idling


@dataclass(frozen=True)
class Setting:
    """A model on so many cores, and what is asked: kinds of request, and how many at a time."""

    model: str
    cores: int
    kinds: tuple[str, ...]
    concurrency: tuple[int, ...]


SETTINGS = (
    Setting("mlp", 1, ("binary", "json", "grpc"), (32, 1)),
    Setting("cnn", 1, ("binary",), (32, 1)),
    Setting("cnn", 2, ("binary",), (32,)),
)


def kinds_for(peer: Peer, setting: Setting) -> list[str]:
    """Those that the peer has; JSON where it takes nothing shorter over HTTP."""
    found = [kind for kind in setting.kinds if kind in peer.forms]
    return found or [kind for kind in ("json", "grpc") if kind in peer.forms][:1]


def measure(peer: Peer, setting: Setting, envs: Path, folder: Path, seconds: int, results: Results) -> None:
    """One start of one server, and every load on it."""
    first = not results.idle.get(peer.name) and setting.model == "mlp"
    with serving(peer, envs, folder / f"{setting.model}.onnx", setting.cores) as running:
        if setting.model == "mlp":
            results.start.setdefault(peer.name, []).append(running.start_s)
        for kind in kinds_for(peer, setting):
            for number, concurrency in enumerate(setting.concurrency):
                cell = Cell(peer.name, setting.model, setting.cores, kind, concurrency)
                try:
                    figures = put(running.asked[kind], running.port_of(kind), concurrency, seconds, number > 0)
                except LoadError as error:
                    results.notes.append(f"{cell}: {error}")
                    print(f"  {cell}: {error}", flush=True)
                    continue
                results.figures.setdefault(cell, []).append(figures)
                show(cell, figures)
        if first:
            time.sleep(SETTLE_S)
            before = running.cpu_s()
            time.sleep(IDLE_S)
            results.idle[peer.name] = (running.cpu_s() - before) / IDLE_S
            results.memory[peer.name] = running.memory_mb()


def show(cell: Cell, figures: Figures) -> None:
    print(f"  {cell}: {figures.rate:,.0f}/s, p50 {figures.p50:.3f}, p99 {figures.p99:.3f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PEERS), help=f"of {','.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2, help="of each load")
    parser.add_argument("--envs", type=Path, default=ROOT / "build" / "peers", help="where the peers are installed")
    parser.add_argument("--out", type=Path, help="write the tables to this file")
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(PEERS)
    if unknown or (gone := missing()):
        parser.error(
            f"unknown: {unknown}" if unknown else f"{' and '.join(gone)} must be installed (benchmarks/README.md)"
        )
    began = time.perf_counter()
    folder = ROOT / "build" / "bench-serve"
    models.write(folder)
    results = Results(options.rounds, options.seconds, notes=[*UNPACKAGED])
    chosen = []
    for name in options.only.split(","):
        why = install(PEERS[name], options.envs.resolve())
        if why is None:
            chosen.append(PEERS[name])
        else:
            results.notes.append(f"{PEERS[name].shown} is left out: {why}")
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", flush=True)
        for cores in (1, 2):
            results.bare.setdefault(cores, []).append(inprocess.rates(folder / "cnn.onnx", cores, 3.0))
        for name in ("mlp", "cnn"):
            results.run_ms.setdefault(name, []).append(inprocess.run_ms(folder / f"{name}.onnx"))
        for setting in SETTINGS:
            for peer in list(chosen):
                if setting.cores > 1 and not peer.scales:
                    continue
                try:
                    measure(peer, setting, options.envs.resolve(), folder, options.seconds, results)
                except StartError as error:
                    results.notes.append(f"{peer.shown} is left out of {setting.model}: {error}")
                    print(f"  {peer.shown}: {error}", flush=True)
    text = write(results, [peer.name for peer in chosen], time.perf_counter() - began, os.cpu_count() or 1)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


if __name__ == "__main__":
    main()
