"""How much the server reads, holds and waits for: everything is bounded before it is allocated."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
SLOWEST = 4 << 10  # bytes a second of its answers that a client has to take


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    url: int = 8 << 10
    header_bytes: int = 32 << 10
    header_count: int = 100
    body: int = 16 * MIB  # one request, before and after decompression
    json: int = 4 * MIB  # the JSON of one request: up to 20 times its size in memory, up to 20 ms a MiB for everybody
    reply: int = 32 * MIB  # one answer
    buffered: int = 256 * MIB  # all bodies of all connections together
    unread: int = 256 * MIB  # all answers that their clients do not take, together; beyond it the largest are given up
    states: int = 256 * MIB  # what sequences keep between their requests, all models together
    connections: int = 8192
    pipeline: int = 16  # requests of one connection that are worked on at once
    streams: int = 256  # the same over HTTP/2, which clients are told
    rows: int = 4096  # of one request
    strings: int = 1 << 16  # of one request's BYTES tensors, which share it evenly: some 20 ms for everybody
    regions: int = 256  # of shared memory; each holds a file open
    request_s: float = 30.0  # a request must have arrived whole this long after its first byte
    idle_s: float = 75.0  # between two requests of one connection
    write_s: float = 30.0  # over which the client takes less of its answer than it has to
    linger_s: float = 2.0  # to read what a refused client still sends, so that it gets to see the refusal
    poll_s: float = 1.0  # between two looks at the models' files
    drain_s: float = 10.0  # to finish what was accepted once the server was told to stop
