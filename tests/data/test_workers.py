"""Workers: what they give is what the loader gives by itself, and what goes wrong in one is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows
from waiting import wait_until

import ox
from ox.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info
from ox.data.loading.channel import Channel
from ox.errors import ArgumentError, DTypeError, ShapeError, WorkerError

pytestmark = pytest.mark.usefixtures("forked_processes")

Point = namedtuple("Point", "x y")


@dataclass(frozen=True)
class Labelled:
    image: Any
    name: str


class Images(Dataset):
    def __init__(self, count: int = 20, side: int = 80) -> None:
        self.count, self.side = count, side

    def __getitem__(self, index: int) -> Any:
        return np.full((self.side, self.side), index, np.float32), index

    def __len__(self) -> int:
        return self.count


class At(Images):
    """Does something at one sample."""

    def __init__(self, at: int, what: Any) -> None:
        super().__init__()
        self.at, self.what = at, what

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            self.what()
        return super().__getitem__(index)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def plain(value: Any) -> Any:
    """Tensors as lists, to be compared."""
    if isinstance(value, ox.Tensor | np.ndarray):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def children() -> set[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in listed}


# -- the same batches --------------------------------------------------------------------------------------------------


@rows("workers", [1, 3])
@rows("options", [{}, {"drop_last": True}, {"prefetch_factor": 1}, {"persistent_workers": True}])
def test_batches_do_not_depend_on_workers(workers: int, options: Any) -> None:
    def epochs(**more: Any) -> Any:
        loader = DataLoader(Images(), 3, True, generator=ox.Generator(4), **more)
        return [plain(list(loader)) for _ in range(2)]

    alone = epochs(drop_last=options.get("drop_last", False))
    assert alone[0] != alone[1]
    assert epochs(num_workers=workers, **options) == alone


def test_other_ways_to_batch() -> None:
    data = Images(7)
    assert plain(list(DataLoader(data, None, num_workers=2))) == plain(list(DataLoader(data, None)))
    batches = [[1, 2], [6], [0, 3, 5]]
    assert plain(list(DataLoader(data, batch_sampler=batches, num_workers=2))) == plain(
        list(DataLoader(data, batch_sampler=batches))
    )
    rows = TensorDataset(np.arange(8000).reshape(8, 1000), np.arange(8))  # taken by whole batches
    assert plain(list(DataLoader(rows, 3, num_workers=2))) == plain(list(DataLoader(rows, 3)))

    class ByName(Dataset):
        def __getitem__(self, index: Any) -> Any:
            return {"name": index, "size": len(index)}

    named = list(DataLoader(ByName(), sampler=["a", "bcd"], batch_size=2, num_workers=1))
    assert named[0]["name"] == ["a", "bcd"] and named[0]["size"].tolist() == [1, 3]

    class Many(Images):
        def __getitems__(self, indices: list[int]) -> Any:
            return [np.int64(-i) for i in indices]

    assert plain(list(DataLoader(Many(4), 2, num_workers=1))) == [["int64", [0, -1]], ["int64", [-2, -3]]]


@pytest.mark.parametrize("batch", [lambda samples: samples, default_collate], ids=["as they are", "collated"])
def test_all_kinds_of_batches(batch: Any) -> None:
    def days(index: int) -> dict[str, Any]:
        """Which have no batch, but travel."""
        return {} if batch is default_collate else {"day": np.array([f"2026-11-0{index + 1}"], "M8[D]")}

    class Kinds(Dataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            big = np.arange(6000, dtype=np.float64).reshape(2, 3000) + index
            return {
                "point": Point(big, [index, (float(index), True)]),
                "text": "ü\ud800\n" * index,
                "tensor": ox.tensor([1.5, index]),
                "half": np.full((3000,), index, ox.bfloat16),
                "strided": big[:, ::2],
                "scalar": np.float32(index),
                "empty": np.zeros((0, 3)),
                "bytes": b"\0\xff" * index,
                **days(index),
            }

    alone, there = (list(DataLoader(Kinds(), 2, collate_fn=batch, num_workers=n)) for n in (0, 2))
    assert plain(there) == plain(alone)
    first = there[0] if batch is default_collate else there[0][0]
    assert type(first["point"]) is Point
    assert type(first["tensor"]) is ox.Tensor


def test_trees_that_only_a_collate_fn_makes() -> None:
    def collate(samples: Any) -> Any:
        local = namedtuple("local", "a")
        return {
            "ordered": OrderedDict(b=1, a=(2, None)),
            3: {(1, "k"): 2**80},
            "own": Labelled(np.ones(9000), "n"),
            "local": local(float("inf")),
            "strings": np.array(["ab", "c"]),
            "scalar": np.float16(3),
        }

    (made,) = DataLoader(Images(2), 2, num_workers=1, collate_fn=collate)
    assert type(made["ordered"]) is OrderedDict and list(made["ordered"]) == ["b", "a"]
    assert made[3] == {(1, "k"): 2**80}
    assert type(made["own"]) is Labelled and made["own"].image.sum() == 9000 and made["own"].name == "n"
    assert made["local"].a == float("inf") and made["ordered"]["a"] == (2, None)
    assert made["strings"].tolist() == ["ab", "c"] and type(made["scalar"]) is np.float16


def test_what_cannot_be_handed_over_is_named() -> None:
    loader = DataLoader(Images(4), 2, num_workers=1, collate_fn=lambda samples: {"x": [1, {2, 3}]})
    with pytest.raises(DTypeError, match=r"cannot hand over batch\['x'\]\[1\]: builtins.set"):
        next(iter(loader))
    loader = DataLoader(Images(4), 2, num_workers=1, collate_fn=lambda samples: np.array([None]))
    with pytest.raises(DTypeError, match="array of object"):
        next(iter(loader))


# -- memory ------------------------------------------------------------------------------------------------------------


def test_batches_that_are_kept_stay_what_they_are() -> None:
    """More of them than shared memory is kept for, and views of them alone."""
    loader = DataLoader(Images(330), 1, num_workers=2, prefetch_factor=3)
    kept = [images[0, 1:3] for images, _ in loader]
    for index, part in enumerate(kept):
        assert (part.array == index).all()
    kept[0].array[...] = -1  # a batch is its owner's, to write too
    assert (kept[1].array == 1).all()


def test_memory_of_batches_is_used_again() -> None:
    """In the worker: as many segments as are on their way, however many batches there are."""

    def mapped() -> list[int]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [int(line.split()[4]) for line in lines if "ox-batch" in line]

    def collate(samples: Any) -> Any:
        return default_collate(samples), mapped()

    before = set(mapped())  # of other loaders' batches that are still in use, which a fork has too
    files = {inode for _, maps in DataLoader(Images(200), 4, num_workers=1, collate_fn=collate) for inode in maps}
    assert 1 < len(files - before) <= 6


def test_what_a_worker_keeps_of_a_batch_is_not_written_over() -> None:
    kept: list[Any] = []

    def collate(samples: Any) -> Any:
        made = default_collate(samples)
        kept.append(made[0])
        return made, [float(each.array.flat[0]) for each in kept]

    for i, (_, firsts) in enumerate(DataLoader(Images(20), 1, num_workers=1, collate_fn=collate)):
        assert firsts == list(range(i + 1))


def test_threads_of_a_dataset_may_collate() -> None:
    def collate(samples: Any) -> Any:
        made: list[Any] = []
        threads = [threading.Thread(target=lambda: made.append(default_collate(samples))) for _ in range(4)]
        for thread in threads:
            thread.start()
        own = default_collate(samples)
        for thread in threads:
            thread.join()
        assert own[0].array.base is not None and all(images.array.base is None for images, _ in made)
        return [own, *made]

    for batches in DataLoader(Images(20, 100), 2, num_workers=1, collate_fn=collate):
        assert all((images.array[:, 0, 0] == labels.array).all() for images, labels in batches)


def test_batches_of_growing_size() -> None:
    sizes = [1, 5, 2, 40, 3, 80, 1]
    data = [np.full((size, 1000), size, np.float32) for size in sizes]
    loader = DataLoader(data, 1, num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert [batch.array.max() for batch in loader] == sizes


# -- random numbers ----------------------------------------------------------------------------------------------------


class Noise(Images):
    def __getitem__(self, index: int) -> Any:
        import random

        return index, np.random.rand(), random.random(), ox.rand(1).item()


def drawn(seed: int, workers: int = 2, **options: Any) -> list[Any]:
    loader = DataLoader(Noise(12), 2, num_workers=workers, generator=ox.Generator(seed), **options)
    return [plain(list(loader)) for _ in range(2)]


def test_seeds_differ_and_can_be_had_again() -> None:
    first = drawn(1)
    for kind in (1, 2, 3):
        numbers = [x for epoch in first for batch in epoch for x in batch[kind][1]]
        assert len(set(numbers)) == 24, "every sample of every epoch draws numbers of its own"
    assert drawn(1) == first and drawn(2) != first
    assert drawn(1, persistent_workers=True) == first
    assert drawn(1, workers=3) == first, "a batch is seeded by its number, not by who makes it"


def test_every_worker_of_a_stream_draws_numbers_of_its_own() -> None:
    class Draws(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            for _ in range(4):
                yield Noise(1)[0]

    loader = DataLoader(Draws(), 2, num_workers=2, generator=ox.Generator(1))
    epochs = [plain(list(loader)) for _ in range(2)]
    for kind in (1, 2, 3):
        numbers = [x for epoch in epochs for batch in epoch for x in batch[kind][1]]
        assert len(numbers) == len(set(numbers)) == 16


def test_worker_init_fn_and_its_own_seeds() -> None:
    def init(number: int) -> None:
        info = get_worker_info()
        assert info is not None and info.id == number
        np.random.seed(100 + number)

    data = drawn(1, worker_init_fn=init)
    expected = [np.random.RandomState(100 + n).rand(6).tolist() for n in (0, 1)]
    for epoch in data:
        for number in (0, 1):
            numbers = [x for batch in epoch[number::2] for x in batch[1][1]]
            assert numbers == expected[number]
    assert [batch[2] for batch in data[0]] == [batch[2] for batch in drawn(1)[0]], "the others are seeded as ever"


def test_worker_info() -> None:
    class Info(Dataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            info = get_worker_info()
            assert info is not None and info.dataset is self
            return info.id, info.num_workers, info.seed, os.getpid()

    assert get_worker_info() is None
    ids, counts, seeds, pids = zip(*DataLoader(Info(), None, num_workers=2), strict=True)
    assert ids == (0, 1, 0, 1) and counts == (2,) * 4 and seeds[1] == seeds[0] + 1
    assert len(set(pids)) == 2 and os.getpid() not in pids


# -- faults ------------------------------------------------------------------------------------------------------------


class OddError(Exception):
    def __init__(self, path: str, code: int) -> None:
        super().__init__(f"{path} has code {code}")


def fail(error: Exception) -> None:
    raise error


@rows(
    ("error", "text"),
    [
        (ValueError("bad image"), "bad image"),
        (KeyError("k"), "k"),
        (OSError(2, "no such file"), "no such file"),
        (OddError("a.png", 3), "a.png has code 3"),
        (ShapeError("of ours"), "of ours"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "bad"),
    ],
)
def test_an_error_is_raised_again_here(error: Exception, text: str) -> None:
    loader = DataLoader(At(7, lambda: fail(error)), 4, num_workers=2)
    with pytest.raises(type(error)) as caught:
        list(loader)
    shown = str(caught.value)
    assert isinstance(caught.value, WorkerError) and isinstance(caught.value, RuntimeError)
    assert text in shown and "sample 7 of the dataset, number 3 of batch 1" in shown
    assert "worker 1" in shown
    assert "test_workers.py" in shown and "in fail" in shown and "raise error" in shown, "the worker's own traceback"
    assert f"{os.sep}fetch.py" not in shown, "and of it what is the user's"


def test_an_error_without_workers_names_the_sample_too() -> None:
    error = ValueError("bad image")
    with pytest.raises(ValueError, match="bad image") as caught:
        list(DataLoader(At(7, lambda: fail(error)), 4))
    assert caught.value.__notes__ == ["in sample 7 of the dataset, number 3 of batch 1"]


def test_after_an_error_the_epoch_may_go_on() -> None:
    batches = iter(DataLoader(At(7, lambda: fail(ValueError("bad"))), 4, num_workers=2))
    got = []
    while True:
        try:
            got.append(next(batches)[1].tolist()[0])
        except ValueError:
            got.append(None)
        except StopIteration:
            break
    assert got == [0, None, 8, 12, 16]


def test_errors_elsewhere_than_in_a_sample() -> None:
    def collate(samples: Any) -> Any:
        raise ValueError("no batch of these")

    with pytest.raises(ValueError, match="collating batch 0: samples 0, 1, 2"):
        list(DataLoader(Images(), 3, num_workers=1, collate_fn=collate))
    ragged = [np.zeros(3), np.zeros(3), np.zeros(4)]
    with pytest.raises(ShapeError, match="number 2 of the batch is the first that differs") as caught:
        list(DataLoader(ragged, 3, num_workers=1))
    report: Any = caught.value
    assert report.extra["line"].startswith("test_workers.py"), "not ox's line"
    assert " in       test_workers.py" in report.extra["traceback"], "nor that of multiprocessing"

    def init(number: int) -> None:
        raise ValueError("no init")

    loader = DataLoader(Images(), 3, num_workers=2, worker_init_fn=init)
    with pytest.raises(ValueError, match="no init") as caught:
        list(loader)
    assert "in worker_init_fn" in str(caught.value)

    class Whole(Images):
        def batch(self, indices: Any) -> Any:
            raise ValueError("no whole batch")

    with pytest.raises(ValueError, match="batch 0: samples 0, 1, 2"):
        list(DataLoader(Whole(), 3, num_workers=1))


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_killed_worker_is_reported(in_order: bool, persistent: bool) -> None:
    options: Any = {"num_workers": 2, "in_order": in_order, "persistent_workers": persistent}
    loader = DataLoader(At(7, kill_myself), 4, **options)
    before = children()
    with pytest.raises(WorkerError, match="was killed by SIGKILL") as caught:
        list(loader)
    assert "sample 7 of the dataset, number 3 of batch 1" in str(caught.value)
    assert "pid" in str(caught.value)
    assert children() <= before, "the others are not left behind"
    with pytest.raises(WorkerError, match="was killed by SIGKILL"):  # and new ones are started
        list(loader)


def test_a_worker_that_leaves_is_reported() -> None:
    with pytest.raises(WorkerError, match="ended by itself, with exit code 3"):
        list(DataLoader(At(7, lambda: os._exit(3)), 4, num_workers=2))
    with pytest.raises(WorkerError, match="SystemExit"):
        list(DataLoader(At(7, lambda: sys.exit(3)), 4, num_workers=2))


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_is_no_exception_names_its_sample_too(kind: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def leave(*_: Any) -> Any:
        raise kind("enough")

    with pytest.raises(WorkerError, match=f"{kind.__name__}: enough") as caught:
        list(DataLoader(At(7, leave), 4, num_workers=2))
    text = str(caught.value)
    assert "sample 7 of the dataset, number 3 of batch 1" in text and 'raise kind("enough")' in text
    with pytest.raises(WorkerError, match=f"{kind.__name__}: enough") as caught:
        list(DataLoader(Images(), 4, num_workers=1, worker_init_fn=leave))
    assert "in worker_init_fn" in str(caught.value)
    stream: Any = type("Stream", (IterableDataset,), {"__iter__": leave})
    with pytest.raises(WorkerError, match=f"{kind.__name__}: enough"):
        list(DataLoader(stream(), 4, num_workers=1))
    lines = capfd.readouterr().err.splitlines()
    # gRPC's library, where a test before has loaded it, says at each fork that it does nothing
    assert [line for line in lines if "fork_posix.cc" not in line] == []


def test_a_worker_killed_from_outside_while_idle() -> None:
    loader = DataLoader(Images(), 4, num_workers=2, persistent_workers=True)
    before = children()
    list(loader)
    victim = min(children() - before)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"killed by SIGKILL[^$]*between two batches"):
        list(loader)
    assert len(list(loader)) == 5


def test_a_worker_killed_as_soon_as_it_has_answered_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Channel.send

    def send(self: Channel, message: dict[str, Any], *rest: Any, **options: Any) -> None:
        real(self, message, *rest, **options)
        if message.get("batch") == 4 and "epoch" in message:  # an answer: this is a worker
            kill_myself()

    monkeypatch.setattr(Channel, "send", send)
    loader = DataLoader(Images(), 4, num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 5
    with pytest.raises(WorkerError, match=r"killed by SIGKILL[^$]*between two batches"):
        list(loader)


def test_a_hang_ends_with_the_timeout() -> None:
    before = children()
    read, write = os.pipe()

    def hang() -> None:
        os.write(write, b"x")
        threading.Event().wait()

    loader = DataLoader(At(7, hang), 4, num_workers=2, timeout=120, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    os.read(read, 1)
    loader._pool.timeout = 0.1
    with pytest.raises(TimeoutError, match=r"gave no batch for 0\.1 s") as caught:
        next(batches)
    os.close(read), os.close(write)
    assert isinstance(caught.value, WorkerError)
    assert "sample 7 of the dataset, number 3 of batch 1" in str(caught.value)
    del caught, batches, loader
    wait_until(lambda: children() <= before)


def test_workers_have_no_workers() -> None:
    class Nested(Images):
        def __getitem__(self, index: int) -> Any:
            return len(list(DataLoader(Images(4), 2, num_workers=index)))

    assert plain(list(DataLoader(Nested(1), 1, num_workers=1))) == [["int64", [2]]]
    with pytest.raises(ArgumentError, match="a worker cannot have workers"):
        list(DataLoader(Nested(2), 1, num_workers=1))


# -- lives -------------------------------------------------------------------------------------------------------------


def test_leaving_an_epoch_ends_its_workers() -> None:
    before = children()
    for _ in DataLoader(Images(1000), 2, num_workers=2):
        break
    wait_until(lambda: children() <= before)
    batches = iter(DataLoader(At(2, threading.Event().wait), 1, num_workers=2))
    next(batches)
    del batches  # while one of them is busy for an hour
    wait_until(lambda: children() <= before)


def test_persistent_workers_stay_and_forget_an_epoch_left_early() -> None:
    class Pid(Images):
        def __getitem__(self, index: int) -> Any:
            return index, os.getpid()

    loader = DataLoader(Pid(), 2, num_workers=2, persistent_workers=True)
    first = {pid for _, pids in loader for pid in pids.tolist()}
    left = iter(loader)
    next(left)
    indices = []
    second = set()
    for index, pids in loader:
        indices += index.tolist()
        second |= set(pids.tolist())
    assert second == first and len(first) == 2 and indices == list(range(20))
    with pytest.raises(ArgumentError, match="this epoch has ended"):
        next(left)
    passing = {pid for _, pids in DataLoader(Pid(), 2, num_workers=2) for pid in pids.tolist()}
    assert not passing & first
    del loader, left
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in first))


def test_two_loaders_and_two_epochs_at_once() -> None:
    loader = DataLoader(Images(), 4, num_workers=2)
    pairs = [(a[1].tolist(), b[1].tolist()) for a, b in zip(loader, loader, strict=True)]
    assert all(a == b for a, b in pairs) and len(pairs) == 5
    found: dict[int, Any] = {}

    def run(number: int) -> None:
        found[number] = [batch[1].tolist() for batch in DataLoader(Images(), 4, num_workers=2)]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [a for a, _ in pairs] for number in range(3)}


def test_in_any_order() -> None:
    may, let = os.pipe()

    class Held(Images):
        def __getitem__(self, index: int) -> Any:
            if index == 0:
                os.read(may, 1)  # until another batch has come
            return index

    batches = iter(DataLoader(Held(), 2, num_workers=2, in_order=False))
    got = [next(batches).tolist()]
    os.write(let, b"x")
    got += [batch.tolist() for batch in batches]
    os.close(may)
    os.close(let)
    assert sorted(got) == [[i, i + 1] for i in range(0, 20, 2)] and got[0] != [0, 1]


def test_no_pool_of_threads_is_used_behind_a_fork() -> None:
    """In the parent ONNX Runtime's threads are there; in the child they are not, and a call would wait for ever."""
    x = ox.rand(512, 512)
    assert ox.isfinite(x @ x).all().item()

    class Products(Images):
        def __getitem__(self, index: int) -> Any:
            return ox.nn.functional.gelu(x @ x).sum()

    assert len(list(DataLoader(Products(4), 2, num_workers=2))) == 2


def test_modes_of_the_loop_do_not_reach_workers() -> None:
    class Modes(Images):
        def __getitem__(self, index: int) -> Any:
            w = ox.ones(2, requires_grad=True)
            (w * 3).sum().backward()
            return w.grad

    with ox.no_grad():
        (made,) = DataLoader(Modes(1), 1, num_workers=1)
    assert made.tolist() == [[3, 3]]


@pytest.mark.usefixtures("real_processes")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start(method: str, tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(
        textwrap.dedent(f"""
        import numpy as np, ox
        from ox.data import DataLoader, Dataset, TensorDataset, get_worker_info
        class Own(Dataset):
            def __len__(self): return 5
            def __getitem__(self, i): return np.full(3000, i), get_worker_info().id
        def main():
            loader = DataLoader(Own(), 2, num_workers=2, multiprocessing_context="{method}")
            assert [(b[0].array[:, 0].tolist(), b[1].tolist()) for b in loader] == [
                ([0, 1], [0, 0]), ([2, 3], [1, 1]), ([4], [0])]
            rows = DataLoader(TensorDataset(ox.arange(4)), 2, num_workers=1, multiprocessing_context="{method}")
            assert [b[0].tolist() for b in rows] == [[0, 1], [2, 3]]
            try:
                bad = DataLoader(Own(), 2, num_workers=1, multiprocessing_context="{method}", collate_fn=lambda s: s)
                next(iter(bad))
            except ValueError as error:
                assert "has to pickle the dataset" in str(error), error
            else:
                raise AssertionError
            print("done")
        if __name__ == "__main__":
            main()
        """)
    )
    done = subprocess.run([sys.executable, page], capture_output=True, text=True, timeout=150)
    assert (done.stdout, done.stderr) == ("done\n", "")


def run_page(text: str, **options: Any) -> subprocess.CompletedProcess[str]:
    head = "import os, sys, time, signal, numpy as np, ox\nfrom ox.data import DataLoader, Dataset\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(text)], capture_output=True, text=True, timeout=150, **options
    )


def test_no_noise_at_the_end_of_the_program() -> None:
    for ending in ("", "sys.exit(0)", "del loader, batches"):
        done = run_page(f"""
        loader = DataLoader(np.zeros((100, 3000)), 2, num_workers=2, persistent_workers=True)
        batches = iter(loader)
        kept = next(batches)
        {ending}
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_workers_print_is_seen_once() -> None:
    done = run_page("""
    class Loud(Dataset):
        def __len__(self): return 4
        def __getitem__(self, i):
            sys.stdout.write(f"sample {i}\\n")  # in one piece, for two write at once
            return i
    sys.stdout.write("begin\\n")
    for _ in DataLoader(Loud(), 2, num_workers=2): pass
    """)
    assert sorted(done.stdout.split("\n")) == ["", "begin", "sample 0", "sample 1", "sample 2", "sample 3"]


def test_what_workers_print_is_there_before_the_batch() -> None:
    """The program may end as soon as it has the last batch, however long a worker takes to write."""
    done = run_page("""
    import time
    class Late:
        def __init__(self, inner): self.inner = inner
        def write(self, text): return self.inner.write(text)
        def flush(self): time.sleep(0.3); self.inner.flush()
    class Loud(Dataset):
        def __len__(self): return 4
        def __getitem__(self, i): print("sample", i); return i
    def slow(worker): sys.stdout = Late(sys.stdout)
    for _ in DataLoader(Loud(), 2, num_workers=2, worker_init_fn=slow): pass
    """)
    assert sorted(done.stdout.splitlines()) == ["sample 0", "sample 1", "sample 2", "sample 3"]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("busy", [True, False])
def test_a_killed_program_leaves_nothing_behind(busy: bool) -> None:
    """No process, even one that is busy for an hour, and nothing in /dev/shm."""
    page = f"""
import os, time, numpy as np
from ox.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 100
    def __getitem__(self, i):
        if {busy} and i > 3: time.sleep(3600)
        return np.zeros((100, 100)), os.getpid()
batches = iter(DataLoader(Slow(), 1, num_workers=2))
pids = {{next(batches)[1].item() for _ in range(4)}}
fork = os.fork()  # another process that lives on, and has what this one had open
if fork: print(fork, *pids, flush=True)
time.sleep(3600)
"""
    program = subprocess.Popen([sys.executable, "-c", page], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    fork, *pids = [int(pid) for pid in program.stdout.readline().split()]
    assert len(pids) == 2 and all(alive(pid) for pid in pids)
    for pid in (program.pid, *pids):  # what they share has no name, so nothing is there to be left
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "ox-batch" in maps and "/dev/shm" not in maps
    program.kill()
    program.wait()
    program.stdout.close()
    try:
        wait_until(lambda: not any(alive(pid) for pid in pids))
    finally:
        os.kill(fork, signal.SIGKILL)


def signalled(page: str, number: int) -> tuple[int, str, str]:
    """The exit code and the outputs of a program whose group gets a signal after its first line."""
    program = subprocess.Popen(
        [sys.executable, "-c", page],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    program.stdout.readline()
    os.killpg(program.pid, number)
    out, err = program.communicate(timeout=150)
    return program.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_of_the_group_are_the_parents_affair(number: int) -> None:
    """Ctrl-C, or a scheduler's SIGTERM, reaches every process of the group: the loop may finish what it does."""
    page = """
import os, signal, sys, time, numpy as np
from ox.data import DataLoader, Dataset
caught = []
class Slow(Dataset):
    def __len__(self): return 30
    def __getitem__(self, i):
        time.sleep(0.02)
        return i
seen = []
for batch in DataLoader(Slow(), 2, num_workers=2):
    seen += batch.tolist()
    if len(seen) == 4:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda number, frame: caught.append(number))
        print("ready", flush=True)
print(caught, seen == list(range(30)))
"""
    _, out, err = signalled(page, number)
    assert (out, err) == (f"[{int(number)}] True\n", "")


@pytest.mark.slow
def test_ctrl_c_ends_the_program_without_noise_of_workers() -> None:
    page = """
import signal, time
from ox.data import DataLoader, Dataset
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
class Slow(Dataset):
    def __len__(self): return 3000
    def __getitem__(self, i):
        time.sleep(0.01)
        return i
for i, batch in enumerate(DataLoader(Slow(), 2, num_workers=2)):
    if i == 2: print("ready", flush=True)
"""
    code, _, err = signalled(page, signal.SIGINT)
    assert err.count("Traceback") == 1 and "KeyboardInterrupt" in err and code != 0


# -- options -----------------------------------------------------------------------------------------------------------


@rows(
    ("options", "text"),
    [
        ({"num_workers": -1}, "count of 0 or more"),
        ({"num_workers": 1.5}, "count of 0 or more"),
        ({"timeout": -1}, "timeout"),
        ({"prefetch_factor": 2}, "needs workers"),
        ({"persistent_workers": True}, "needs workers"),
        ({"multiprocessing_context": "fork"}, "needs workers"),
        ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor"),
        ({"num_workers": 1, "multiprocessing_context": "thread"}, "no start method"),
        ({"num_workers": 1, "multiprocessing_context": 3}, "start method"),
    ],
)
def test_options_that_cannot_be(options: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        DataLoader(Images(), **options)


def test_options_of_a_loader_stay() -> None:
    loader = DataLoader(Images(), 2, num_workers=1)
    assert loader.prefetch_factor == 2 and DataLoader(Images()).prefetch_factor is None
    with pytest.raises(ArgumentError, match="batch_size of a loader cannot be changed"):
        loader.batch_size = 3
    loader.worker_init_fn = print  # as in PyTorch, the rest may be set


class Ended(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        yield from range(info.id, 11, info.num_workers)
        if info.id == 1:
            raise ValueError("the stream broke")


def test_an_error_of_a_stream() -> None:
    got = []
    with pytest.raises(ValueError, match="sample 5 of the stream, in batch 2") as caught:
        for batch in DataLoader(Ended(), 2, num_workers=2):
            got.append(batch.tolist())
    assert got == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10]] and "the stream broke" in str(caught.value)
