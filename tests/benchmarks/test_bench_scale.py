"""bench_scale.py: its store lets the ranks meet."""

from __future__ import annotations

import bench_scale

from ox.distributed import client


def test_two_ranks_meet() -> None:
    store = bench_scale.StoreProcess(2)
    ranks = [store.connect(rank, 2, "rank") for rank in range(2)]
    assert all(client.receive(rank)["ready"] for rank in ranks)
    for rank in ranks:
        rank.close()
    store.process.wait(60)
