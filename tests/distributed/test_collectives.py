"""Collectives and messages on 2 and 4 real processes: every operation, type and layout against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from ranks import needs_mpi, run
from rows import rows

pytestmark = needs_mpi

CHECKS = {
    "reductions of every type": """
    Op = dist.ReduceOp
    floats, integers = (ox.float32, ox.float64, ox.float16, ox.bfloat16), (ox.int8, ox.uint8, ox.int32, ox.int64)
    for dtype in floats + integers:
        parts = [np.arange(1, 7).reshape(2, 3).astype(dtype) + np.asarray(r, dtype) for r in range(world)]
        wide = np.stack(parts).astype(np.float64)
        expected = {Op.SUM: wide.sum(0), Op.PRODUCT: wide.prod(0), Op.MIN: wide.min(0), Op.MAX: wide.max(0)}
        if dtype in floats:
            expected[Op.AVG] = wide.mean(0)
        else:
            bits = np.stack(parts)
            expected |= {Op.BAND: np.bitwise_and.reduce(bits), Op.BOR: np.bitwise_or.reduce(bits),
                         Op.BXOR: np.bitwise_xor.reduce(bits)}
        for op, value in expected.items():
            x = ox.from_numpy(parts[rank].copy())
            assert dist.all_reduce(x, op) is None
            assert x.dtype == dtype and np.array_equal(x.array, value.astype(np.int64).astype(dtype)
                if dtype in integers else value.astype(dtype)), (dtype, op, x, value)
            y = ox.from_numpy(parts[rank].copy())
            dist.reduce(y, dst=1, op=op)
            if rank == 1:
                assert np.array_equal(y.array, x.array), (dtype, op)
    """,
    # A sum in half precision would lose the small ones at every rank, or overflow before the average.
    "halves are rounded once": """
    x = ox.tensor([60000.0], dtype=ox.float16)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.item() == 60000.0 or abs(x.item() - 60000) < 32, x
    y = ox.tensor([256.0 if rank == 0 else 0.5], dtype=ox.bfloat16)
    dist.all_reduce(y)
    assert y.item() == float(np.float32(256 + 0.5 * (world - 1)).astype(ox.bfloat16)), y
    """,
    "bools": """
    Op = dist.ReduceOp
    mine = [rank == 0, True, False, rank < 2]
    expected = {Op.SUM: [True, True, False, True], Op.MAX: [True, True, False, True],
                Op.PRODUCT: [False, True, False, world == 2], Op.MIN: [False, True, False, world == 2],
                Op.BOR: [True, True, False, True], Op.BAND: [False, True, False, world == 2],
                Op.BXOR: [True, world % 2 == 1, False, False]}
    for op, value in expected.items():
        x = ox.tensor(mine)
        dist.all_reduce(x, op)
        assert x.dtype == ox.bool and x.tolist() == value, (op, x)
    """,
    "no gradient comes back from the other ranks": """
    Op = dist.ReduceOp
    x = ox.ones(3, requires_grad=True)
    y = x * 2
    dist.all_reduce(y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y.sum().backward()
    assert ["all_reduce" in str(each.message) for each in caught] == [True] and x.grad.tolist() == [2, 2, 2]
    for name, write in {
        "all_reduce": lambda y: dist.all_reduce(y, Op.MAX), "reduce": lambda y: dist.reduce(y, 0, Op.AVG),
        "broadcast": lambda y: dist.broadcast(y, 0), "all_gather": lambda y: dist.all_gather([y, *others], x.detach()),
        "all_gather_into_tensor": lambda y: dist.all_gather_into_tensor(y, x.detach()[:1]),
        "all_reduce of a view": lambda y: dist.all_reduce(y[:2], Op.MAX),
    }.items():
        others = [ox.zeros(3) for _ in range(world - 1)]
        y = x[:1].repeat(world) * 2 if "into" in name else x * 2
        write(y)
        try:
            y.sum().backward()
            raise AssertionError(name)
        except ox.errors.GradientError as error:
            assert name.split()[0] in str(error), error
    for write in (dist.all_reduce, lambda y: dist.broadcast(y, 0)):
        with ox.no_grad():
            write(x)  # a parameter
        y = x * 2
        write(y.detach())
        y.sum().backward()
    """,
    "a gradient that goes no further says so": """
    def made(collective, size, source):
        out = ox.zeros(size)
        collective(out, source)
        return out
    for collective, size in ((dist.all_gather_into_tensor, 2 * world * world), (dist.reduce_scatter_tensor, 2)):
        x = ox.ones(2 * world, requires_grad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (made(collective, size, x * 2).sum() + x.sum()).backward()
        assert [collective.__name__ in str(each.message) for each in caught] == [True], caught
        assert x.grad.tolist() == [1] * 2 * world
        assert not made(collective, size, (x * 2).detach()).requires_grad
        with ox.no_grad():
            assert not made(collective, size, x).requires_grad
    """,
    "memory of any layout is written where it is": """
    whole = ox.zeros(4, 6)
    part = whole[:, ::2].t()                      # neither contiguous nor in C's order
    part += rank + 1
    dist.all_reduce(part)
    total = sum(range(1, world + 1))
    assert whole[:, ::2].tolist() == [[total] * 3] * 4 and whole[:, 1::2].tolist() == [[0] * 3] * 4
    scalar = ox.tensor(float(rank))
    dist.broadcast(scalar, src=1)
    assert scalar.item() == 1 and scalar.shape == ()
    nothing = ox.zeros(0, 3)
    dist.all_reduce(nothing)
    late = ox.zeros(3, 2).t() + rank
    work = dist.broadcast(late, src=world - 1, async_op=True)
    work.wait()
    assert late.tolist() == [[world - 1] * 3] * 2
    read_only = np.ones(3, np.float32)
    read_only.flags.writeable = False
    x = ox.as_tensor(read_only)
    dist.all_reduce(x)
    assert x.tolist() == [world] * 3
    """,
    # What backward needs and a collective overwrites is an error, as with any write in place.
    "a write is counted": """
    x = ox.ones(3).requires_grad_()
    y = x * 2
    z = (y * y).sum()
    with ox.no_grad():
        dist.all_reduce(y.detach())
    try:
        z.backward()
    except ox.errors.GradientError as error:
        assert "all_reduce" in str(error), error
    else:
        raise AssertionError("the write was not seen")
    """,
    "moving": """
    rows = [[[r, 10 * r]] for r in range(world)]
    mine = ox.tensor(rows[rank], dtype=ox.bfloat16)
    got = [ox.zeros(1, 2, dtype=ox.bfloat16) for _ in range(world)]
    dist.all_gather(got, mine)
    assert [t.tolist() for t in got] == rows
    out = ox.zeros(world, 2, dtype=ox.bfloat16)
    dist.all_gather_into_tensor(out, mine)
    assert out.tolist() == [row[0] for row in rows]
    got = [ox.zeros(1, 2, dtype=ox.bfloat16) for _ in range(world)] if rank == 1 else None
    dist.gather(mine, got, dst=1)
    assert rank != 1 or [t.tolist() for t in got] == rows
    x = ox.zeros(2)
    dist.scatter(x, [ox.ones(2) * (5 + r) for r in range(world)] if rank == 0 else None, src=0)
    assert x.tolist() == [5 + rank] * 2
    y = ox.zeros(2)
    dist.reduce_scatter(y, [ox.ones(2) * (r + rank) for r in range(world)])
    assert y.tolist() == [world * rank + sum(range(world))] * 2
    for dtype in (ox.float16, ox.int64):
        z = ox.zeros(2, dtype=dtype)
        dist.reduce_scatter_tensor(z, ox.arange(2 * world).to(dtype) * (rank + 1))
        assert z.tolist() == [sum(range(1, world + 1)) * v for v in (2 * rank, 2 * rank + 1)]
    a = ox.zeros(world)
    dist.reduce_scatter_tensor(a[:1], ox.arange(world).float() * world, dist.ReduceOp.AVG)
    assert a[0].item() == rank * world
    b = ox.zeros(world, 2, dtype=ox.int64)
    dist.all_to_all_single(b, ox.arange(world * 2).reshape(world, 2) + 100 * rank)
    assert b.tolist() == [[100 * r + 2 * rank, 100 * r + 2 * rank + 1] for r in range(world)]
    """,
    "many at once in any order of waits": """
    total = sum(range(1, world + 1))
    tensors = [ox.ones(n) * (rank + 1) for n in (1, 1000, 300_000, 7, 50_000)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    works.append(dist.barrier(async_op=True))
    for work in reversed(works):
        assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
    assert all((x.array == total).all() for x in tensors)
    for _ in range(200):                          # nobody waits: the thread brings them to their end
        dist.all_reduce(ox.ones(100), async_op=True)
    dist.barrier()
    """,
    "messages": """
    after, before = (rank + 1) % world, (rank - 1) % world
    x, y = ox.ones(200_000) * rank, ox.zeros(200_000)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)]):
        work.wait()
    assert (y.array == before).all()
    if rank == 0:
        seen = set()
        for _ in range(world - 1):
            z = ox.zeros(2, dtype=ox.int64)
            source = dist.recv(z)
            assert z.tolist() == [source, source]
            seen.add(source)
        assert seen == set(range(1, world))
    else:
        dist.send(ox.tensor([rank, rank]), 0)
    if rank == 0:
        dist.send(ox.tensor([1.0]), 1, tag=5)
        dist.send(ox.tensor([2.0]), 1, tag=6)
    if rank == 1:
        a, b = ox.zeros(1), ox.zeros(2)[::2]
        dist.recv(b, 0, tag=6)
        dist.recv(a, 0, tag=5)
        assert (a.item(), b.item()) == (1, 2)
    dist.monitored_barrier(timeout=20)
    """,
    "values without pickling": """
    value = {"rank": rank, 2: (1.5, None, "ä", [True]), "x": ox.ones(2, dtype=ox.bfloat16) * rank,
             "a": np.arange(6).reshape(2, 3)[:, ::2], "n": np.float32(3), "b": b"xy" * rank, "big": 2**70}
    got = [None] * world
    dist.all_gather_object(got, value)
    for r, each in enumerate(got):
        assert each["rank"] == r and each[2] == (1.5, None, "ä", [True]) and each["big"] == 2**70
        assert each["x"].dtype == ox.bfloat16 and each["x"].tolist() == [r, r] and each["b"] == b"xy" * r
        assert each["a"].tolist() == [[0, 2], [3, 5]] and each["n"] == 3
    told = [f"from {rank}", [rank]] if rank == 1 else [None, None]
    dist.broadcast_object_list(told, src=1)
    assert told == ["from 1", [1]]
    mine = [None]
    dist.scatter_object_list(mine, [f"to {r}" for r in range(world)] if rank == 0 else None)
    assert mine == [f"to {rank}"]
    collected = [None] * world if rank == 1 else None
    dist.gather_object(rank, collected, dst=1)
    assert rank != 1 or collected == list(range(world))
    # an error of one rank is one of all, so the next call is not taken for this one
    def failing(call, sender, text="only data travels", own="builtin_function_or_method"):
        try:
            call()
        except ox.errors.ArgumentError as error:
            assert text in str(error) and (rank != sender or own in str(error)), error
            assert rank == sender or f"rank {sender} cannot send" in str(error), error
        else:
            raise AssertionError
        got = [None] * world
        dist.all_gather_object(got, 10 * rank)
        assert got == [10 * r for r in range(world)], got
    everyone, lengths = list(range(world)), "a list of the right length"
    failing(lambda: dist.all_gather_object(got, {"f": print} if rank == 1 else 1), 1)
    failing(lambda: dist.all_gather_object([None] * (world + (rank == 0)), 1), 0, lengths, f"expected {world} values")
    failing(lambda: dist.gather_object(print if rank == 1 else 1, [None] * world if rank == 0 else None), 1)
    failing(lambda: dist.gather_object(1, None, dst=1), 1, lengths, "NoneType")
    failing(lambda: dist.broadcast_object_list([print if rank == 1 else 1], src=1), 1)
    failing(lambda: dist.scatter_object_list([None], [print] * world if rank == 0 else None), 0)
    failing(lambda: dist.scatter_object_list([None], [1] if rank == 0 else None), 0, lengths, "1 values")
    # large values of other sizes; one travels only to who asks for it
    import tracemalloc
    size = 4 << 20
    value = np.full(size if rank == 1 else 10, rank, np.uint8)
    tracemalloc.start()
    collected = [None] * world if rank == 0 else None
    dist.gather_object(value, collected)
    parts = [np.full(size if r == 1 else 10, r, np.uint8) for r in range(world)] if rank == 0 else None
    mine = [None]
    dist.scatter_object_list(mine, parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rank <= 1 or peak < size // 4, peak
    dist.all_gather_object(got, value)
    for several in (got, collected, [mine[0]] * world):
        for r, part in enumerate(several or ()):
            r = rank if several is not got and several is not collected else r
            assert len(part) == (size if r == 1 else 10) and (part == r).all()
    """,
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """What so many ranks say that go through all checks, one after the other: to start them takes longest."""

    @cache
    def all_checks(ranks: int) -> str:
        code = f"""
        import textwrap
        for name, check in {CHECKS!r}.items():
            exec(compile(textwrap.dedent(check), name, "exec"), dict(globals()))
            dist.barrier()
            print(f"rank {{rank}}: {{name}}\\n", end="", flush=True)
        """
        return run(code, ranks, tmp_path_factory.mktemp("ranks"), check=False)

    return all_checks


@rows("name", CHECKS)
@rows("ranks", [2, 4])
def test_on_all_ranks(name: str, ranks: int, outputs: Callable[[int], str]) -> None:
    """Who fails a check ends, and none of the checks behind it is reached."""
    said = outputs(ranks)
    assert all(f"rank {rank}: {name}\n" in said for rank in range(ranks)), said[-6000:]
    assert all(f"rank {rank} is done" in said for rank in range(ranks)) or name != list(CHECKS)[-1], said[-6000:]


def test_groups(tmp_path: Path) -> None:
    code = """
    even, odd = dist.new_group([2, 0]), dist.new_group([1, 3])
    mine, other = (even, odd) if rank % 2 == 0 else (odd, even)
    assert other is dist.GroupMember.NON_GROUP_MEMBER
    assert (dist.get_rank(mine), dist.get_world_size(mine)) == (rank // 2, 2) and dist.get_rank(other) == -1
    ranks = dist.get_process_group_ranks(mine)
    assert ranks == [rank % 2, rank % 2 + 2] and dist.get_global_rank(mine, 1) == ranks[1]
    assert dist.get_group_rank(mine, rank) == rank // 2
    x = ox.ones(2) * rank
    dist.all_reduce(x, group=mine)
    assert x.tolist() == [sum(ranks)] * 2
    dist.broadcast(x, src=ranks[1], group=mine)      # global ranks, as in PyTorch
    if rank % 2 == 0:
        dist.all_reduce(x, group=mine)               # as often as one group likes
    y = ox.ones(1)
    dist.all_reduce(y)                               # everybody's still works
    assert y.item() == 4 and dist.get_backend() == "mpi" and dist.group.WORLD is not None
    try:
        dist.all_reduce(x, group=other)
    except ox.errors.ArgumentError as error:
        assert "not in that group" in str(error)
    else:
        raise AssertionError
    dist.destroy_process_group(mine)
    """
    run(code, 4, tmp_path)


def test_what_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    """Errors that a rank can see alone, before anybody waits: of type, shape, list, rank; with the user's line."""
    code = """
    from ox.errors import ArgumentError, DTypeError, ShapeError
    def refused(kind, word, call):
        try:
            call()
        except kind as error:
            assert word in str(error) and "script.py" in str(error), error
        else:
            raise AssertionError(word)
    x, Op = ox.ones(2), dist.ReduceOp
    refused(DTypeError, "BAND", lambda: dist.all_reduce(x, Op.BAND))
    refused(DTypeError, "average", lambda: dist.all_reduce(ox.ones(2, dtype=ox.int64), Op.AVG))
    refused(ArgumentError, "ReduceOp", lambda: dist.all_reduce(x, "sum"))
    refused(ArgumentError, "takes tensors", lambda: dist.all_reduce(x.numpy()))
    refused(ArgumentError, "one tensor a rank", lambda: dist.all_gather([x], x))
    refused(ShapeError, "float32 [3]", lambda: dist.all_gather([x, ox.ones(3)], x))
    refused(ShapeError, "2 times", lambda: dist.all_gather_into_tensor(ox.ones(3), x))
    refused(ShapeError, "2 times", lambda: dist.reduce_scatter_tensor(x, ox.ones(5)))
    refused(ShapeError, "equal parts", lambda: dist.all_to_all_single(ox.ones(3), ox.ones(3)))
    refused(ArgumentError, "rank 7", lambda: dist.broadcast(x, src=7))
    refused(ArgumentError, "this one", lambda: dist.send(x, rank))
    refused(ArgumentError, "each once", lambda: dist.new_group([0, 0]))
    refused(ArgumentError, "called before", lambda: dist.init_process_group())
    refused(ArgumentError, "expanded", lambda: dist.all_reduce(ox.ones(1).expand(4)))
    refused(ArgumentError, "right length", lambda: dist.all_gather_object([None], 1))
    """
    run(code, 2, tmp_path)


def test_a_call_that_one_rank_could_not_begin_is_not_taken_for_the_next(tmp_path: Path) -> None:
    """A rank that catches its error goes on, where the others wait in that call: all raise, and no value is wrong."""
    code = """
    x = ox.ones(1).expand(4) if rank == 0 else ox.full([4], 7.0)
    try:
        dist.all_reduce(x)
    except ox.errors.ArgumentError as error:
        assert rank == 0 and "expanded" in str(error)
    except ox.errors.DistributedError as error:
        assert rank == 1 and "after 1 failed calls" in str(error), error
    y = ox.full([4], 1.0)
    try:
        dist.all_reduce(y)
    except ox.errors.DistributedError as error:
        assert "different operations" in str(error) or "is closed" in str(error), error
        sys.exit(3)
    """
    out = run(code, 2, tmp_path, check=False)
    assert "is done" not in out and "Error" not in out.replace("DistributedError", ""), out
