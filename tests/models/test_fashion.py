"""The two recipes of Fashion-MNIST: their data, the classic network against plain NumPy, the three commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ox
from ox.errors import LoadError
from ox_models import fashion, fashion_cnn, fashion_data
from ox_models.fashion_data import LABELS, VALIDATION, arrays, split


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """The files, which every command of a recipe would unpack again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fashion_data, "arrays", cache(arrays))
        yield


@pytest.mark.usefixtures("fashion_images")
def test_the_parts_are_those_of_the_paper() -> None:
    train, validation, held_back = split()
    assert [len(part) for part in (train, validation, held_back)] == [60_000 - VALIDATION, VALIDATION, 10_000]
    image, kind = train[0]
    assert (image.shape, image.dtype, kind.dtype) == ((1, 28, 28), ox.float32, ox.int64)
    assert LABELS[int(kind)] == "ankle boot"  # the first image of the paper's first figure
    assert (float(image.min()), float(image.max())) == (0, 1)
    assert np.bincount(held_back.tensors[1].numpy()).tolist() == [1000] * 10
    padded, _ = split(padding=2)[2][0]
    assert np.array_equal(padded.numpy()[:, 2:-2, 2:-2], held_back[0][0].numpy())


def test_without_the_data_the_error_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ox.data.datasets.idx.roots", lambda *_: [tmp_path])
    with pytest.raises(LoadError, match="dataset-fashion-mnist"):
        arrays(train=True)


def test_the_classic_curve_is_that_of_plain_numpy() -> None:
    """Forward, gradient and step written out: 15 epochs of 8 batches; later rounding grows fast. Random images,
    so that it runs everywhere."""
    random = np.random.RandomState(0)
    images = random.rand(512, 784)
    kinds = random.randint(0, 10, 512)
    ox.manual_seed(0)
    model = fashion.model()
    optimizer = fashion.optimizer(model, 0.5)
    w1, b1, w2, b2 = (p.detach().numpy().astype(np.float64) for p in model.parameters())
    for step in range(120):
        rows = np.arange(64) + 64 * (step % 8)
        x, y = images[rows], kinds[rows]
        hidden = 1 / (1 + np.exp(-(x @ w1.T + b1)))
        scores = hidden @ w2.T + b2
        log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        expected = -log_p[np.arange(64), y].mean()

        got = fashion.loss(model(ox.tensor(x.reshape(64, 1, 28, 28), dtype=ox.float32)), ox.tensor(y))
        assert abs(got.item() - expected) < 1e-5, step  # float32 beside float64
        optimizer.zero_grad()
        got.backward()
        optimizer.step()

        d_scores = (np.exp(log_p) - np.eye(10)[y]) / 64
        d_hidden = d_scores @ w2 * hidden * (1 - hidden)
        for weight, gradient in ((w2, d_scores.T @ hidden), (b2, d_scores.sum(0)), (w1, d_hidden.T @ x)):
            weight -= 0.5 * gradient  # in place: w1 is the same array in the next round
        b1 -= 0.5 * d_hidden.sum(0)
    assert expected < 2.30, "nothing was learned, so nothing was compared"


def test_augmentation_mirrors_half_of_the_images() -> None:
    images = ox.rand(400, 1, 28, 28)
    mirrored, answers = fashion_cnn.augment((images, ox.arange(400)), ox.Generator(1))
    assert answers.tolist() == list(range(400))
    before, after = images.numpy(), mirrored.numpy()
    same = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert 150 < sum(same) < 250
    turned = [np.array_equal(a[..., ::-1], b) for a, b in zip(before, after, strict=True)]
    assert np.array_equal(same, np.logical_not(turned))
    again, _ = fashion_cnn.augment((images, ox.arange(400)), ox.Generator(1))
    assert np.array_equal(again.numpy(), after)


@pytest.mark.usefixtures("fashion_images")
@pytest.mark.parametrize("page", ["fashion", "fashion_cnn"])
def test_trained_exported_served(page: str, three_commands: Callable[..., dict]) -> None:
    assert three_commands(page)["held_back"]["count"] == 64


@pytest.mark.usefixtures("fashion_images")
def test_what_little_training_brings(tmp_path: Path) -> None:
    """Two thousand images, once: far from the page's figure, and farther from guessing."""
    run = ox.train.train("fashion_cnn", out=tmp_path, epochs=1, limit=2_000, batch_size=32)
    assert run.result is not None
    assert run.result["held_back"]["accuracy"] > 0.65


@pytest.mark.usefixtures("fashion_images")
def test_arrays_are_ready_to_train_on() -> None:
    images, kinds = arrays(train=False)
    assert images.flags.c_contiguous
    assert (images.dtype, kinds.dtype) == (np.float32, np.int64)


@pytest.mark.usefixtures("fashion_images")
@pytest.mark.slow
def test_the_classic_network_gets_what_its_page_says(tmp_path: Path) -> None:
    run = ox.train.train("fashion", out=tmp_path)
    assert run.result is not None
    assert 0.72 < run.result["held_back"]["accuracy"] < 0.76
