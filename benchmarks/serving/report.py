"""The tables of results: each measurement with its target, and all measurements."""

from __future__ import annotations

import platform
import statistics
from dataclasses import dataclass, field

from serving.load import Figures
from serving.peers import OX, PEERS


@dataclass(frozen=True)
class Cell:
    peer: str
    model: str
    cores: int
    kind: str
    concurrency: int

    def __str__(self) -> str:
        cores = f"{self.cores} core{'s' * (self.cores > 1)}"
        return f"{self.peer}, {self.model}, {cores}, {self.kind}, {self.concurrency} at a time"


@dataclass
class Results:
    rounds: int
    seconds: int
    figures: dict[Cell, list[Figures]] = field(default_factory=dict)
    start: dict[str, list[float]] = field(default_factory=dict)  # s
    idle: dict[str, float] = field(default_factory=dict)  # cores
    memory: dict[str, float] = field(default_factory=dict)  # MB
    bare: dict[int, list[float]] = field(default_factory=dict)  # cnn rows/s of ONNX Runtime alone, by cores
    run_ms: dict[str, list[float]] = field(default_factory=dict)  # one row, by model
    notes: list[str] = field(default_factory=list)

    def median(self, cell: Cell, figure: str = "rate") -> float | None:
        found = [getattr(each, figure) for each in self.figures.get(cell, [])]
        return statistics.median(found) if found else None

    def rate(self, peer: str, model: str, kind: str, cores: int = 1) -> float | None:
        return self.median(Cell(peer, model, cores, kind, 32))

    def best_http(self, peer: str, model: str, cores: int = 1) -> float | None:
        """Of a peer's ways over HTTP the faster one."""
        found = [self.rate(peer, model, kind, cores) for kind in ("binary", "json")]
        return max((rate for rate in found if rate is not None), default=None)


def write(results: Results, peers: list[str], seconds: float, cores: int) -> str:
    import onnxruntime

    lines = [
        "# ox serve compared with other servers",
        "",
        f"{cores} cores shared by server and load, Python {platform.python_version()}, "
        f"onnxruntime {onnxruntime.__version__}; one sample per request, medians of {results.rounds} rounds of "
        f"{results.seconds} s, the servers measured in turn. "
        f"`make bench-serve` repeats the measurement ({seconds / 60:.0f} minutes).",
        "",
        "| measurement | target | result | |",
        "|---|---|---|---|",
        *(f"| {what} | {wanted} | {got} | {mark} |" for what, wanted, got, mark in aims(results)),
        "",
        *tables(results, peers),
    ]
    if results.notes:
        lines += ["", "Not measured:", "", *(f"- {' '.join(note.split())}" for note in results.notes)]
    return "\n".join(lines) + "\n"


def aims(results: Results) -> list[tuple[str, str, str, str]]:
    """Each target: measurement, target, result, and whether the target is reached."""
    rows: list[tuple[str, str, str, str]] = []

    def add(what: str, wanted: str, got: float | None, shown: str, good: bool) -> None:
        rows.append(
            (what, wanted, "not measured" if got is None else shown, "" if got is None else "✓" if good else "✗")
        )

    def times(what: str, peer: str, wanted: float, mine: float | None, theirs: float | None) -> None:
        ratio = None if mine is None or not theirs else mine / theirs
        add(f"{what}, beside {PEERS[peer].shown}", f"{wanted:g}×", ratio, f"{ratio or 0:.2f}×", (ratio or 0) >= wanted)

    binary = results.rate(OX, "mlp", "binary")
    add("mlp, HTTP binary, requests/s", "50,000", binary, f"{binary or 0:,.0f}", (binary or 0) >= 50_000)
    for peer, wanted in (("pytriton", 10), ("tritonserver", 2.5), ("mosec", 2), ("litserve", 30)):
        times("mlp, HTTP binary", peer, wanted, binary, results.best_http(peer, "mlp"))
    for peer, wanted in (("litserve", 20), ("mlserver", 15)):
        times("mlp, HTTP JSON", peer, wanted, results.rate(OX, "mlp", "json"), results.rate(peer, "mlp", "json"))
    for peer, wanted in (("tritonserver", 3), ("grpcaio", 8)):
        times("mlp, gRPC", peer, wanted, results.rate(OX, "mlp", "grpc"), results.rate(peer, "mlp", "grpc"))
    for cores, part in ((1, 0.9), (2, 0.75)):
        name = f"cnn, {cores} core{'s' * (cores > 1)}"
        mine = results.rate(OX, "cnn", "binary", cores)
        bare = statistics.median(results.bare[cores])
        share = None if mine is None else mine / bare
        shown = f"{100 * (share or 0):.0f} % ({mine or 0:,.0f} of {bare:,.0f})"
        add(f"{name}, of ONNX Runtime in process", f"{100 * part:.0f} %", share, shown, (share or 0) >= part)
        for peer, wanted in (("pytriton", 5), ("litserve", 8), ("mosec", 1.25)):
            times(name, peer, wanted, mine, results.best_http(peer, "cnn", cores))
    for model in ("mlp", "cnn"):
        p50 = results.median(Cell(OX, model, 1, "binary", 1), "p50")
        over = None if p50 is None else p50 - statistics.median(results.run_ms[model])
        add(
            f"{model}, one at a time: p50 over ONNX Runtime's run",
            "0.15 ms",
            over,
            f"{over or 0:.3f} ms (p50 {p50 or 0:.3f})",
            (over or 0) <= 0.15,
        )
    start = statistics.median(results.start[OX]) if OX in results.start else None
    idle, memory = results.idle.get(OX), results.memory.get(OX)
    add("first correct response after the start", "1 s", start, f"{start or 0:.2f} s", (start or 0) <= 1)
    add("idle, cores", "0", idle, f"{idle or 0:.3f}", (idle or 0) < 0.005)
    add("resident memory with mlp", "150 MB", memory, f"{memory or 0:.0f} MB", (memory or 0) < 150)
    return rows


def tables(results: Results, peers: list[str]) -> list[str]:
    columns = [
        ("mlp, 1, binary", Cell("", "mlp", 1, "binary", 32)),
        ("mlp, 1, JSON", Cell("", "mlp", 1, "json", 32)),
        ("mlp, 1, gRPC", Cell("", "mlp", 1, "grpc", 32)),
        ("cnn, 1 core", Cell("", "cnn", 1, "binary", 32)),
        ("cnn, 2 cores", Cell("", "cnn", 2, "binary", 32)),
        ("one at a time: mlp", Cell("", "mlp", 1, "binary", 1)),
        ("cnn", Cell("", "cnn", 1, "binary", 1)),
    ]
    lines = [
        "Requests per second (p50 / p99, ms), with 32 connections and with one. Binary: V2 with tensors as bytes; "
        "raw bytes for mosec and FastAPI, base64 in JSON for LitServe; JSON where a server has no shorter format "
        "(MLServer).",
        "",
        f"| | {' | '.join(name for name, _ in columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for peer in peers:
        cells = []
        for _, column in columns:
            cell = Cell(peer, column.model, column.cores, column.kind, column.concurrency)
            if cell not in results.figures and column.kind == "binary":
                cell = Cell(peer, column.model, column.cores, "json", column.concurrency)
            rate, p50, p99 = (results.median(cell, figure) for figure in ("rate", "p50", "p99"))
            cells.append("–" if rate is None else f"{rate:,.0f} ({p50:.2f} / {p99:.2f})")
        lines.append(f"| {PEERS[peer].shown} | {' | '.join(cells)} |")
    bare = " and ".join(f"{statistics.median(rates):,.0f} on {n}" for n, rates in results.bare.items())
    runs = ", ".join(f"{model} {statistics.median(values):.3f} ms" for model, values in results.run_ms.items())
    lines += [
        "",
        f"ONNX Runtime in process: cnn {bare} core(s), at its best batch size; one sample takes {runs}.",
        "",
        "| | first correct response, s | idle, cores | memory, MB |",
        "|---|---|---|---|",
    ]
    for peer in peers:
        start = statistics.median(results.start[peer]) if peer in results.start else None
        row = ["–" if start is None else f"{start:.2f}"]
        row += [
            f"{table[peer]:{form}}" if peer in table else "–"
            for table, form in ((results.idle, ".3f"), (results.memory, ".0f"))
        ]
        lines.append(f"| {PEERS[peer].shown} | {' | '.join(row)} |")
    return lines
