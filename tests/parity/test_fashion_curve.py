"""The classic Fashion-MNIST network: the whole loss curve, step by step, is PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox.errors import LoadError
from ox_models import fashion
from ox_models.fashion_data import arrays

torch = pytest.importorskip("torch", reason="PyTorch is the other side of this comparison")
torch.set_num_threads(1)  # its threads spin, and take many times as long where they must share their cores

from moved import moved  # noqa: E402 - it needs PyTorch, too

EPOCHS, BATCH, LR = (fashion.defaults[key] for key in ("epochs", "batch_size", "lr"))


@pytest.mark.parametrize("lr", [LR, 0.5])
def test_every_loss_of_ten_epochs(lr: float) -> None:
    try:
        images, kinds = arrays(train=True)
    except LoadError as error:
        pytest.skip(error.one_line())
    page = moved("fashion")
    ours, theirs = fashion.model(), page.model()
    ours.load_state_dict({name: ox.from_numpy(x.numpy()) for name, x in theirs.state_dict().items()})
    one, two = fashion.optimizer(ours, lr), page.optimizer(theirs, lr)
    orders = np.random.RandomState(0)
    got, expected = [], []
    for _ in range(EPOCHS):
        order = orders.permutation(len(images))
        for first in range(0, len(images), BATCH):
            x, y = images[order[first : first + BATCH]], kinds[order[first : first + BATCH]]
            loss = fashion.loss(ours(ox.from_numpy(x)), ox.from_numpy(y))
            one.zero_grad()
            loss.backward()
            one.step()
            other = page.loss(theirs(torch.from_numpy(x)), torch.from_numpy(y))
            two.zero_grad()
            other.backward()
            two.step()
            got.append(loss.item())
            expected.append(other.item())
    assert len(got) == EPOCHS * 938
    difference = np.abs(np.subtract(got, expected))
    assert difference.max() < 1e-4, f"step {difference.argmax()}"
    assert np.mean(got[-938:]) < (0.9 if lr == LR else 0.5), "nothing was learned, so nothing was compared"
