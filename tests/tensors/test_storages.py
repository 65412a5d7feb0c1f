"""Deep copies of tensors that share memory."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from rows import rows

import ox
from ox import nn


def test_copies_of_views_share_memory() -> None:
    x = ox.arange(6.0)
    made = copy.deepcopy({"part": x[2:4], "x": x, "columns": x.reshape(2, 3).t(), "same": x})
    made["x"][2] = 99
    assert made["part"].tolist() == [99, 3] and made["columns"][2, 0].item() == 99 and x.tolist() == [0, 1, 2, 3, 4, 5]
    made["part"][1] = 7
    assert made["x"].tolist() == [0, 1, 99, 7, 4, 5] and made["same"] is made["x"]
    assert made["x"].version == made["part"].version == 2


@rows("seed", range(12))
def test_copies_in_any_order_share_what_their_sources_share(seed: int) -> None:
    """Random views of one memory: after the same writes, copies and sources are the same."""
    random = np.random.default_rng(seed)
    root = ox.arange(60.0).reshape(6, 10)
    views: list[Any] = [root, root.t(), root[1:4, ::3], root[:, 4], root[2], root[2, 1:2].expand(5), root[5:, 8:]]
    views += [root.reshape(-1)[start : start + 9] for start in range(0, 50, 7)]
    views += [root.detach(), ox.from_numpy(root.numpy()[1:3]), root.data[3:]]
    views = [views[i] for i in random.permutation(len(views))[: random.integers(2, len(views))]]
    copies = copy.deepcopy(views)
    for i in range(10):
        n = int(random.integers(len(views)))
        if not views[n].stride() or 0 in views[n].stride():
            continue
        for tensors in (views, copies):
            tensors[n].copy_(ox.full(tensors[n].shape, float(100 + i)))
    for a, b in zip(views, copies, strict=True):
        assert a.tolist() == b.tolist()


def test_what_does_not_overlap_is_copied_apart() -> None:
    x = ox.zeros(1000, 100)
    left, right = copy.deepcopy([x[0], x[1]])
    assert left.numpy().base is None and right.numpy().base is None
    ones = copy.deepcopy([ox.ones(()).expand(3), ox.ones(()).expand(3)])
    ones[0].add_(1) if ones[0].stride() != (0,) else None
    assert ones[1].tolist() == [1, 1, 1]


def test_many_views_of_one_memory_are_copied_in_linear_time() -> None:
    x = ox.arange(3000.0)
    for views in ([x[i : i + 9] for i in range(2900)], list(x.reshape(-1, 2).unbind())):
        copies = copy.deepcopy(views)
        assert all(a.equal(b) for a, b in zip(views, copies, strict=True))
        copies[0][1] = -1
        assert (copies[1][0].item() == -1) is (views[1].data_ptr() == views[0].data_ptr() + 4)


def test_a_copied_view_passes_gradients_on() -> None:
    whole, part = copy.deepcopy([x := ox.zeros(4), x[1:3]])
    w = ox.ones(2, requires_grad=True)
    part.mul_(0).add_(w * 3)
    whole.sum().backward()
    assert w.grad.tolist() == [3, 3]


def test_buffers_of_a_copied_module_share_memory_and_parameters_do_not() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", ox.zeros(4))
            self.register_buffer("head", self.table[:2])
            self.weight = nn.Parameter(ox.zeros(2))
            self.part = self.weight.data[:1]

    model = copy.deepcopy(Model())
    model.table[0] = 5
    model.weight.data[0] = 5
    assert model.head.tolist() == [5, 0] and model.part.tolist() == [0]  # PyTorch's do not, either


def test_a_leaf_and_its_data() -> None:
    x = ox.ones(3, requires_grad=True)
    leaf, data = copy.deepcopy([x, x.detach()])
    data[0] = 4
    assert leaf.tolist() == [4, 1, 1] and leaf.is_leaf and leaf.requires_grad and not data.requires_grad
    leaf.sum().backward()
    assert leaf.grad.tolist() == [1, 1, 1]


def test_the_version_has_pytorchs_name() -> None:
    x = ox.ones(2)
    part = x[1:]
    assert x._version == 0 and type(x._version) is int
    part.add_(1)
    assert x._version == part._version == x.version == 1
