"""A run's report: what it says is true, and the page needs nothing else."""

from __future__ import annotations

import base64
import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rows import rows

import ox
from ox import nn, train
from ox.data import TensorDataset
from ox.errors import LoadError
from ox.train.report import write
from ox.train.report.findings import MAX_WORST, find
from ox.train.report.picture import show


class Page(HTMLParser):
    """Collects what would be fetched, what would run, and checks that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.scripts = 0
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script" or any(name.startswith("on") for name, _ in attrs)
        addresses = [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.fetched += [address for address in addresses if not address.startswith("#")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(run: train.Run) -> None:
    text = write(run).read_text()
    page = Page(text)
    assert not page.open and not page.scripts
    assert page.fetched and all(source.startswith("data:image/png;base64,") for source in page.fetched)
    assert "default-src 'none'" in text


def test_the_figures_are_those_of_the_run(run: train.Run) -> None:
    text = write(run).read_text()
    result = run.result
    assert result is not None
    assert f"{100 * result['held_back']['accuracy']:.2f} %" in text
    assert f"{result['best']['validation_loss']:.4g}" in text
    assert "validation f1" in text and "two &amp; two" in text
    assert run.config["run"]["command"].split()[0] in text and "numpy" in text


def test_the_confusion_matrix_counts_every_sample(run: train.Run) -> None:
    recipe, model = train.restore(run)
    part = recipe.data().held_back
    found = find(recipe, model, part)
    images, sides = (t.array for t in part.tensors)
    answers = model(ox.as_tensor(images)).array.argmax(1)
    expected = np.zeros((2, 2), np.int64)
    np.add.at(expected, (sides, answers), 1)
    assert found.confusion is not None
    np.testing.assert_array_equal(found.confusion, expected)
    assert 0 < expected[0, 1] + expected[1, 0] < 64, "a test with mistakes in it"


def test_the_worst_are_the_worst(run: train.Run) -> None:
    recipe, model = train.restore(run)
    part = recipe.data().held_back
    found = find(recipe, model, part)
    images, sides = part.tensors
    losses = nn.functional.cross_entropy(model(images), sides, reduction="none").array
    order = np.argsort(-losses, kind="stable")[:MAX_WORST]
    assert [s.index for s in found.worst] == order.tolist()
    np.testing.assert_allclose([s.loss for s in found.worst], losses[order], rtol=1e-5)
    np.testing.assert_array_equal(found.worst[0].inputs[0], images.array[order[0]])
    assert found.count == 64


def test_a_recipe_with_a_step_of_its_own(run: train.Run) -> None:
    recipe, model = train.restore(run)
    part = recipe.data().held_back
    plain = find(recipe, model, part)

    def step(model, batch):
        outputs = model(batch[0])
        return recipe.page.loss(outputs, batch[1]), outputs

    recipe.page.step = step
    found = find(recipe, model, part)
    assert [s.index for s in found.worst] == [s.index for s in plain.worst]
    np.testing.assert_array_equal(found.confusion, plain.confusion)


def test_names_from_the_page_cannot_write_html(run: train.Run) -> None:
    text = write(run).read_text()
    assert "dark <b>" not in text and "dark &lt;b&gt;" in text


def test_pictures_are_the_inputs() -> None:
    image = np.arange(48, dtype=np.float32).reshape(1, 6, 8)
    source = re.search(r"base64,([^\"]+)", show(image))
    assert source is not None
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(source[1]))))
    np.testing.assert_array_equal(decoded, np.floor(image[0] * (255 / 47)).astype(np.uint8))
    colours = np.random.RandomState(0).randint(0, 256, (3, 7, 9)).astype(np.uint8)
    source = re.search(r"base64,([^\"]+)", show(colours))
    assert source is not None
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(source[1]))))
    np.testing.assert_array_equal(decoded, colours.transpose(1, 2, 0))


@rows(
    ("x", "expected"),
    [
        (np.array([1.5, np.nan], np.float32), "1.5, nan"),
        (np.arange(20), ", ..."),
        (np.array([1, 2]), "<code>1, 2</code>"),
        (np.sin(np.arange(30.0)), "<polyline"),
        (np.full((8, 2), np.inf), "<polyline"),
        (np.zeros((40, 40), np.float32), "<img"),
    ],
)
def test_other_inputs_are_shown_too(x: np.ndarray, expected: str) -> None:
    assert expected in show(x)


def test_losses_that_are_no_numbers_come_first(run: train.Run) -> None:
    recipe, model = train.restore(run)
    images, sides = recipe.data().held_back.tensors
    broken = images.array.copy()
    broken[5] = np.nan
    found = find(recipe, model, TensorDataset(broken, sides))
    assert found.worst[0].index == 5 and np.isnan(found.worst[0].loss)


def test_a_run_without_a_best_epoch_has_no_report(run: train.Run) -> None:
    run.best.unlink()
    with pytest.raises(LoadError, match="no checkpoint"):
        write(run)
    assert not (run.folder / "report.html").exists()


def test_a_browser_shows_it(run: train.Run, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no Chromium here")
    path, picture = write(run), tmp_path / "report.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    subprocess.run(
        [browser, *flags, "--window-size=900,1800", f"--screenshot={picture}", path.resolve().as_uri()],
        capture_output=True,
        timeout=120,
        check=True,
    )
    with Image.open(picture) as shown:
        pixels = np.asarray(shown.convert("RGB")).reshape(-1, 3)
    blue = ((pixels[:, 2] > 200) & (pixels[:, 0] < 120)).sum()  # the curves and the matrix's diagonal
    assert blue > 1000 and len(np.unique(pixels, axis=0)) > 50
