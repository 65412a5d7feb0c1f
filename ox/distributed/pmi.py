"""MPICH's process manager interface (PMI-1), with which `MPI_Init` exchanges addresses. Imports nothing of ox."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from itertools import groupby

LINE = 1 << 14  # the longest line in bytes
VALUES = 64  # values that each rank may store


class Manager:
    """What the MPI of all ranks has stored.

    Args:
        size: the number of ranks.
        machines: for each rank, a text that is equal for ranks that can share memory.
    """

    def __init__(self, size: int, machines: Sequence[str]) -> None:
        self.size, self._machines = size, machines
        self._values: dict[str, str] = {}
        self._in_barrier: list[asyncio.StreamWriter] = []
        self._job = f"ox-{secrets.token_hex(8)}"  # MPICH names its shared memory after it

    def enter_barrier(self, writer: asyncio.StreamWriter) -> None:
        """A rank waits for all."""
        self._in_barrier.append(writer)
        if len(self._in_barrier) == self.size:
            for each in self._in_barrier:
                each.write(b"cmd=barrier_out rc=0\n")
            self._in_barrier.clear()

    def answer(self, words: dict[str, str]) -> str:
        """The answer to a command."""
        match words.get("cmd"):
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return f"cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={LINE // 4}"
            case "get_appnum":
                return "cmd=appnum appnum=0"
            case "get_universe_size":
                return f"cmd=universe_size size={self.size}"
            case "get_my_kvsname":
                return f"cmd=my_kvsname kvsname={self._job}"
            case "put" if len(self._values) < VALUES * self.size:
                self._values[words["key"]] = words["value"]
                return "cmd=put_result rc=0 msg=success"
            case "get":
                key = words["key"]
                value = mapping(self._machines) if key == "PMI_process_mapping" else self._values.get(key)
                found = value is not None
                return f"cmd=get_result rc=0 msg=success value={value}" if found else (
                    "cmd=get_result rc=-1 msg=key_not_found value=unknown")  # fmt: skip
            case "finalize":
                return "cmd=finalize_ack rc=0"
            case other:  # spawning of processes, publishing of names
                return f"cmd={other}_result rc=-1 msg=not_supported"


def words(line: bytes) -> dict[str, str]:
    """The words ``key=value`` of a line. Raises ValueError if it is not ASCII."""
    return dict(word.split("=", 1) for word in line.decode("ascii").split() if "=" in word)


def mapping(machines: Sequence[str]) -> str:
    """Which ranks share a machine, for MPI's shared memory: blocks of (first machine, machines, ranks on each)."""
    numbers: dict[str, int] = {}
    blocks: list[list[int]] = []
    for machine, ranks in groupby(numbers.setdefault(name, len(numbers)) for name in machines):
        count = len(list(ranks))
        if blocks and blocks[-1][2] == count and sum(blocks[-1][:2]) == machine:
            blocks[-1][1] += 1
        else:
            blocks.append([machine, 1, count])
    return "(vector" + "".join(f",({a},{b},{c})" for a, b, c in blocks) + ")"
