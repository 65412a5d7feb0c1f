"""The transforms as objects: what is drawn, how often, from which generator, one image or many."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rows import rows

import ox
from ox.core.random_stream import NEWEST
from ox.data import DataLoader, Dataset
from ox.data import transforms as T
from ox.data.datasets import CIFAR10, MNIST
from ox.data.transforms import augment, rng, v2
from ox.data.transforms import functional as F
from ox.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (20, 30, 3), np.uint8)
MANY = RNG.integers(0, 256, (9, 16, 16, 3), np.uint8)
EVERY = [
    T.CenterCrop(8),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.ConvertImageDtype(ox.float32),
    T.GaussianBlur(3),
    T.Grayscale(),
    T.Lambda(lambda x: F.vflip(x)),
    T.Pad(2),
    T.RandAugment(),
    T.RandomAdjustSharpness(2),
    T.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 5),
    T.RandomApply([T.Pad(1), T.RandomCrop(16)], 0.5),
    T.RandomAutocontrast(),
    T.RandomChoice([T.RandomInvert(), T.RandomRotation(10), np.flipud]),
    T.RandomCrop(14, padding=1),
    T.RandomEqualize(),
    T.RandomErasing(),
    T.RandomErasing(value="random"),
    T.RandomGrayscale(0.5),
    T.RandomHorizontalFlip(),
    T.RandomInvert(),
    T.RandomOrder([T.RandomRotation(10), T.RandomInvert(), T.Grayscale(3)]),
    T.RandomPerspective(),
    T.RandomPosterize(3),
    T.RandomResizedCrop(8),
    T.RandomRotation(30),
    T.RandomSolarize(100),
    T.RandomVerticalFlip(),
    T.Resize((8, 9)),
    T.ToDtype(ox.float32, scale=True),
    T.TrivialAugmentWide(),
    T.Compose([T.RandomCrop(12), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)]),
]


def arrays(x: Any) -> np.ndarray[Any, Any]:
    return x.numpy() if hasattr(x, "node") else x


@rows("transform", EVERY, ids=lambda t: type(t).__name__)
def test_a_batch_is_what_its_images_are(transform: T.Transform) -> None:
    """With the same numbers, `apply_batch` makes of many what `apply` makes of each."""
    numbers = rng.draw_many((len(MANY), transform.draws), ox.Generator(5))
    inputs: list[Any] = [MANY]
    if not isinstance(transform, T.Compose | T.RandomChoice):
        inputs += [ox.from_numpy(np.ascontiguousarray(MANY.transpose(0, 3, 1, 2)))]
    for images in inputs:
        together = arrays(transform.apply_batch(images, numbers))
        each = [arrays(transform.apply(image, row)) for image, row in zip(images, numbers.tolist(), strict=True)]
        assert (together == np.stack(each)).all()
    before = MANY.copy()
    assert len(arrays(transform.batch(MANY, ox.Generator(1)))) == 9 and (before == MANY).all()
    assert len(arrays(transform.batch(MANY[:0]))) == 0


@rows("transform", EVERY, ids=lambda t: type(t).__name__)
def test_numbers_come_from_oxs_generators(transform: T.Transform) -> None:
    ox.manual_seed(3)
    first, state = arrays(transform(PHOTO)), ox.random.get_state()
    arrays(transform(PHOTO))
    ox.random.set_state({"seed": 3, "counter": 0, "version": NEWEST})
    assert (arrays(transform(PHOTO)) == first).all() and ox.random.get_state() == state
    np.random.seed(0)  # NumPy's own state plays no part
    ox.manual_seed(3)
    assert (arrays(transform(Image.fromarray(PHOTO))) == first).all()
    one = transform.batch(MANY, ox.Generator(7))
    assert ox.random.get_state() == state
    assert (arrays(transform.batch(MANY, ox.Generator(7))) == arrays(one)).all()
    assert repr(transform).startswith(type(transform).__name__ + "(")


@rows("count", [0, 1, 4, 5, 16, 17, 40])
def test_few_numbers_are_those_of_uniform(count: int) -> None:
    """The shortcut in Python's integers gives the stream's own bits, and leaves it where `uniform` would."""
    for seed, counter in ((0, 0), (1 << 40, 7), (-3, (1 << 64) - 2), (12345, (1 << 32) - 1)):
        a, b = ox.Generator(0), ox.Generator(0)
        for generator in (a, b):
            generator.set_state({"seed": seed, "counter": counter})
        assert rng.draw(count, a) == ox.random.uniform((count,), generator=b).tolist()
        assert rng.draw(3, a) == ox.random.uniform((3,), generator=b).tolist() and a.get_state() == b.get_state()


def test_a_generator_of_its_own() -> None:
    own = T.RandomRotation(90, generator=ox.Generator(1))
    pipeline = T.Compose([own, T.RandomHorizontalFlip()])
    assert pipeline.draws == 1
    ox.manual_seed(0)
    first, second = pipeline(PHOTO), pipeline(PHOTO)
    assert own.generator is not None and own.generator.get_state()["counter"] == 2
    own.generator.manual_seed(1)
    ox.manual_seed(0)
    assert (pipeline(PHOTO) == first).all() and (pipeline(PHOTO) == second).all()
    together = pipeline.batch(MANY)
    own.generator.manual_seed(1)
    own.batch(MANY[:5])
    assert together.shape == MANY.shape


def test_no_number_is_recorded(tmp_path: Any) -> None:
    """What is drawn for data is no part of a model's graph."""

    class Model(ox.nn.Module):
        def forward(self, x: ox.Tensor) -> ox.Tensor:
            T.RandomHorizontalFlip()(PHOTO)
            T.RandomCrop(8).batch(MANY)
            return x * 2

    ox.export.save(Model(), tmp_path / "m.onnx", ox.ones(2, 3))
    assert ox.export.load(tmp_path / "m.onnx")(ox.ones(1, 3)).tolist() == [[2, 2, 2]]


# -- what is drawn ---------------------------------------------------------------------------------------------------


def test_crops_come_from_everywhere_evenly() -> None:
    places = np.arange(5 * 6).reshape(5, 6, 1)
    many = np.repeat(places[None], 6000, 0)
    crops = T.RandomCrop((3, 4)).batch(many, ox.Generator(0))
    counts = np.unique(crops[:, 0, 0, 0], return_counts=True)
    assert counts[0].tolist() == [0, 1, 2, 6, 7, 8, 12, 13, 14]
    assert np.abs(counts[1] - 6000 / 9).max() < 5 * math.sqrt(6000 / 9)
    assert (crops - crops[:, :1, :1] == places[:3, :4]).all()
    generator = ox.Generator(0)
    params = {T.RandomCrop.get_params(places, (3, 4), generator) for _ in range(300)}
    assert params == {(i, j, 3, 4) for i in range(3) for j in range(3)}


def test_crop_frames() -> None:
    small = PHOTO[:5, :6]
    with pytest.raises(ShapeError, match="size of RandomCrop is larger than the image") as error:
        T.RandomCrop(8)(small)
    assert "pad_if_needed" in str(error.value)
    assert T.RandomCrop(8, pad_if_needed=True, padding_mode="edge")(small).shape == (8, 8, 3)
    assert T.RandomCrop((3, 9), pad_if_needed=True)(small).shape == (3, 9, 3)
    white = T.RandomCrop((9, 10), padding=2, fill=255)(small)
    assert (white[2:-2, 2:-2] == small).all() and (white[0] == 255).all()
    assert T.RandomCrop(8, pad_if_needed=True).batch(MANY[:, :5]).shape == (9, 8, 8, 3)


@pytest.mark.parametrize("flip", [T.RandomHorizontalFlip, T.RandomVerticalFlip])
def test_flips_are_as_likely_as_said(flip: Any) -> None:
    many = np.repeat(PHOTO[None, :4, :5], 4000, 0)
    flipped = (flip(0.3).batch(many, ox.Generator(0)) != many).any((1, 2, 3))
    assert abs(flipped.mean() - 0.3) < 0.04
    assert (
        (flip(0)(PHOTO) == PHOTO).all() and (flip(1)(flip(1)(PHOTO)) == PHOTO).all() and (flip(1)(PHOTO) != PHOTO).any()
    )
    for wrong in (-0.1, 1.1, "often", True):
        with pytest.raises(ArgumentError, match="probability"):
            flip(wrong)


def test_resized_crops_have_the_areas_and_shapes_asked_for() -> None:
    image, generator = np.zeros((100, 120, 3), np.uint8), ox.Generator(0)
    parts = np.array([T.RandomResizedCrop.get_params(image, (0.1, 0.5), (0.5, 2.0), generator) for _ in range(1000)])
    top, left, height, width = parts.T
    share = height * width / (100 * 120)
    assert 0.095 < share.min() < 0.13 and 0.45 < share.max() < 0.51 and abs(share.mean() - 0.3) < 0.03
    shape = np.log(width / height)
    assert math.log(0.49) < shape.min() < -0.6 and 0.6 < shape.max() < math.log(2.05) and abs(shape.mean()) < 0.06
    assert top.min() == left.min() == 0 and (top + height).max() == 100 and (left + width).max() == 120
    assert T.RandomResizedCrop((5, 7))(image).shape == (5, 7, 3)
    # what fits nowhere is the middle at the nearest shape
    assert T.RandomResizedCrop.get_params(image, (9, 9), (1.0, 1.0), generator) == (0, 10, 100, 100)
    assert T.RandomResizedCrop.get_params(image, (9, 9), (0.1, 0.5), generator) == (0, 35, 100, 50)
    assert T.RandomResizedCrop.get_params(image, (9, 9), (1.0, 2.0), generator) == (0, 0, 100, 120)
    with pytest.raises(ArgumentError, match="scale and ratio"):
        T.RandomResizedCrop(5, scale=(1, 0.5))


def test_turns_are_within_their_limits() -> None:
    generator = ox.Generator(0)
    angles = np.array([T.RandomRotation.get_params((-20, 40), generator) for _ in range(500)])
    assert -20 <= angles.min() < -17 and 37 < angles.max() <= 40
    drawn = [
        T.RandomAffine.get_params((-5, 5), (0.1, 0.5), (0.5, 2), (-3, 3, 0, 9), (100, 40), generator)
        for _ in range(800)
    ]
    turn, moved, scale, shear = (np.array(part) for part in zip(*drawn, strict=True))
    assert -5 <= turn.min() < -4.9 and np.abs(moved).max(0).tolist() == [10, 20] and 0.5 <= scale.min() < 0.52
    assert shear[:, 0].min() < -2.9 and 0 <= shear[:, 1].min() < 0.1 and 8.9 < shear[:, 1].max() <= 9
    plain = T.RandomAffine.get_params((0, 0), None, None, None, (100, 40), generator)
    assert plain == (0, (0, 0), 1.0, (0, 0))
    assert (T.RandomAffine(0)(PHOTO) == PHOTO).all() and (T.RandomRotation(0)(PHOTO) == PHOTO).all()
    assert (T.RandomPerspective(0, p=1)(PHOTO) == PHOTO).all()
    for wrong in (lambda: T.RandomRotation(-1), lambda: T.RandomAffine(5, translate=(2, 0)),
                  lambda: T.RandomAffine(5, scale=(0, 1)), lambda: T.RandomAffine(5, shear=(1, 2, 3)),
                  lambda: T.RandomPerspective(2), lambda: T.RandomRotation((3, 1))):  # fmt: skip
        with pytest.raises(ArgumentError):
            wrong()


def test_perspective_reaches_as_far_as_said() -> None:
    white = np.full((40, 60, 1), 255, np.uint8)
    seen = [T.RandomPerspective(0.5, p=1, generator=ox.Generator(i))(white)[..., 0] for i in range(40)]
    assert all((image[10:30, 15:45] == 255).all() for image in seen)  # corners move no further than half way in
    assert np.mean([image[0, 0] == 0 for image in seen]) > 0.8


def test_colours_are_changed_within_their_limits_and_in_every_order() -> None:
    generator = ox.Generator(0)
    drawn = [T.ColorJitter.get_params((0.6, 1.4), None, (0, 2), (-0.1, 0.1), generator) for _ in range(600)]
    assert len({tuple(d[0]) for d in drawn}) == 24 and all(d[2] is None for d in drawn)
    bright = np.array([d[1] for d in drawn], float)
    assert 0.6 <= bright.min() < 0.61 and 1.39 < bright.max() <= 1.4 and abs(bright.mean() - 1) < 0.03
    assert T.ColorJitter(0.4, (0.5, 3), 2, 0.3).saturation == [0, 3] and T.ColorJitter(hue=0.3).hue == [-0.3, 0.3]
    assert (T.ColorJitter()(PHOTO) == PHOTO).all()
    only = T.ColorJitter(brightness=(2, 2))(PHOTO)
    assert (only == F.adjust_brightness(PHOTO, 2)).all()
    for wrong in ({"brightness": -1}, {"hue": 0.6}, {"contrast": (2, 1)}, {"saturation": (1, 2, 3)}):
        with pytest.raises(ArgumentError):
            T.ColorJitter(**wrong)  # type: ignore[arg-type]


def test_grey_by_chance_keeps_its_channels() -> None:
    assert T.RandomGrayscale(1)(PHOTO).shape == PHOTO.shape and T.RandomGrayscale(1)(PHOTO[..., :1]).shape == (
        20,
        30,
        1,
    )
    assert T.Grayscale()(PHOTO).shape == (20, 30, 1)


def test_blur_draws_its_sigma() -> None:
    assert (T.GaussianBlur(3, 0.7)(PHOTO) == F.gaussian_blur(PHOTO, 3, 0.7)).all()
    drawn = [T.GaussianBlur.get_params(0.5, 2.0, ox.Generator(i)) for i in range(50)]
    assert 0.5 <= min(drawn) < 0.7 and 1.8 < max(drawn) <= 2
    with pytest.raises(ArgumentError, match="sigma"):
        T.GaussianBlur(3, (2, 1))


def test_erasing() -> None:
    image = ox.ones(3, 40, 50)
    shares = []
    for i in range(200):
        erased = T.RandomErasing(1, (0.1, 0.3), (0.5, 2), generator=ox.Generator(i))(image).numpy() == 0
        assert (erased == erased[0]).all()
        rows, columns = (np.flatnonzero(erased[0].any(axis)) for axis in (1, 0))
        assert erased[0].sum() == len(rows) * len(columns) and rows[-1] - rows[0] + 1 == len(rows)  # one rectangle
        assert 0.45 < len(rows) / len(columns) < 2.2
        shares.append(erased.mean())
    assert 0.09 < min(shares) < 0.12 and 0.28 < max(shares) < 0.31
    noise = T.RandomErasing(1, value="random", generator=ox.Generator(0))(ox.full((3, 64, 64), 9.0)).numpy()
    assert abs(noise[noise != 9].mean()) < 0.2 and 0.8 < noise[noise != 9].std() < 1.2
    coloured = T.RandomErasing(1, value=[1, 2, 3], generator=ox.Generator(0))(ox.zeros(3, 20, 20)).numpy()
    assert coloured.max((1, 2)).tolist() == [1, 2, 3]
    assert (T.RandomErasing(1, (0.9, 0.9), (9, 9))(image).numpy() == 1).all()  # no such rectangle fits
    with pytest.raises(ArgumentError, match="'random'"):
        T.RandomErasing(value="noise")


def test_choices() -> None:
    counts = np.zeros(3)
    choice = T.RandomChoice([lambda x: 0, lambda x: 1, lambda x: 2], p=[1, 0, 3], generator=ox.Generator(0))
    for _ in range(400):
        counts[choice(PHOTO)] += 1
    assert counts[1] == 0 and abs(counts[0] - 100) < 40
    applied = T.RandomApply([lambda x: x + 1, lambda x: x * 2], 0.25, generator=ox.Generator(0))
    made = [applied(1) for _ in range(400)]
    assert set(made) == {1, 4} and abs(made.count(4) - 100) < 40
    order = T.RandomOrder([lambda x: [*x, 0], lambda x: [*x, 1], lambda x: [*x, 2]], generator=ox.Generator(0))
    assert len({tuple(order([])) for _ in range(100)}) == 6
    for wrong in (lambda: T.RandomChoice([]), lambda: T.RandomChoice([np.abs], [1, 2]), lambda: T.Compose(np.abs),
                  lambda: T.Compose([3]), lambda: T.Lambda(3)):  # type: ignore[arg-type]  # fmt: skip
        with pytest.raises(ArgumentError):
            wrong()


def test_batches_that_are_none() -> None:
    for wrong in (MANY[0], list(MANY), np.zeros(4)):
        with pytest.raises(ShapeError, match=r"RandomCrop\.batch takes many images"):
            T.RandomCrop(4).batch(wrong)
    with pytest.raises(ShapeError, match="different sizes"):
        T.RandomRotation(45, expand=True).batch(MANY, ox.Generator(0))


# -- RandAugment and its like ----------------------------------------------------------------------------------------

NAMES = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
         "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"]  # fmt: skip


def test_the_tables_of_the_papers() -> None:
    table = T.RandAugment()._table(331, 662)
    assert list(table) == NAMES
    strongest = {name: float(v[-1]) for name, v in table.items() if v is not None}
    assert strongest["ShearX"] == 0.3 and strongest["Rotate"] == 30 and strongest["Brightness"] == 0.9
    assert abs(strongest["TranslateX"] - 300) < 1e-9 and abs(strongest["TranslateY"] - 150) < 1e-9
    assert table["Posterize"].tolist()[::6] == [8, 7, 6, 6, 5, 4] and strongest["Solarize"] == 0
    assert table["Solarize"][0] == 255 and abs(float(table["Rotate"][9]) - 9) < 1e-9
    wide = T.TrivialAugmentWide()._table()
    assert list(wide) == NAMES and wide["Rotate"][-1] == 135 and wide["ShearY"][-1] == 0.99
    assert wide["TranslateX"][-1] == 32 and wide["Posterize"][-1] == 2 and wide["Color"][-1] == 0.99


def test_operations() -> None:
    image = RNG.integers(0, 256, (33, 33, 3), np.uint8)
    run = lambda name, strength: augment.operate(image, name, strength, "nearest", 0)  # noqa: E731
    assert (run("Identity", 0) == image).all()
    assert (run("TranslateX", 5.7)[:, 5:] == image[:, :-5]).all() and (run("TranslateY", -4)[:-4] == image[4:]).all()
    sheared = run("ShearX", 0.3)
    assert (sheared[0] == image[0]).all()
    assert (sheared[20, :-6] == image[20, 6:]).all() or (sheared[20, 6:] == image[20, :-6]).all()
    assert (run("Rotate", 90) == np.rot90(image)).all()
    assert (run("Brightness", -0.9) == F.adjust_brightness(image, 1 - 0.9)).all()
    assert (run("Color", 0.5) == F.adjust_saturation(image, 1.5)).all()
    assert (run("Posterize", 4.0) == image & 0xF0).all() and (run("Solarize", 0) == 255 - image).all()
    floats = augment.operate(image.astype(np.float32) / 255, "Solarize", 128, "nearest", 0)
    assert np.abs(floats * 255 - run("Solarize", 128)).max() < 0.01
    assert (run("AutoContrast", 0) == F.autocontrast(image)).all() and (run("Equalize", 0) == F.equalize(image)).all()


def test_each_operation_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float]] = []
    monkeypatch.setattr(augment, "operate", lambda image, name, strength, *_: seen.append((name, strength)) or image)
    generator = ox.Generator(0)
    for transform in (T.RandAugment(3, 9, generator=generator), T.TrivialAugmentWide(generator=generator)):
        seen.clear()
        for _ in range(1400):
            transform(PHOTO)
        runs = len(seen) // 1400
        counts = [sum(name == known for name, _ in seen) for known in NAMES]
        assert sum(counts) == 1400 * runs and all(abs(count - 100 * runs) < 50 * math.sqrt(runs) for count in counts)
        turns = [strength for name, strength in seen if name == "Rotate"]
        if runs == 3:
            assert {round(t, 9) for t in turns} == {9.0, -9.0} and abs(np.sign(turns).sum()) < 70
        else:
            assert len({round(abs(t), 6) for t in turns}) > 25 and min(turns) < -120 and max(turns) > 120
    for wrong in ({"magnitude": 31}, {"num_ops": -1}, {"num_magnitude_bins": 1}):
        with pytest.raises(ArgumentError):
            T.RandAugment(**wrong)


# -- mixing ----------------------------------------------------------------------------------------------------------


def batch() -> tuple[ox.Tensor, ox.Tensor]:
    return ox.from_numpy(RNG.random((6, 3, 20, 24)).astype(np.float32)), ox.tensor([0, 1, 2, 3, 0, 1])


def test_mixup() -> None:
    images, classes = batch()
    mixed, soft = T.MixUp(num_classes=5)(images, classes, generator=ox.Generator(0))
    keep = float(soft[1, 1].item())
    assert 0 < keep < 1 and soft.shape == (6, 5) and np.allclose(soft.numpy().sum(1), 1)
    assert soft.numpy()[1].tolist() == pytest.approx([1 - keep, keep, 0, 0, 0])
    x = images.numpy()
    assert np.allclose(mixed.numpy(), x * keep + np.roll(x, 1, 0) * (1 - keep), atol=1e-6)
    again = T.MixUp(num_classes=5)([images, classes], generator=ox.Generator(0))
    assert again[0].tolist() == mixed.tolist()  # a pair is as good
    ready = T.MixUp()(images, ox.nn.functional.one_hot(classes, 5).float(), generator=ox.Generator(0))
    assert np.allclose(ready[1].numpy(), soft.numpy())
    generator = ox.Generator(0)
    kept = [
        float(T.MixUp(alpha=0.4, num_classes=5)(images, classes, generator=generator)[1][1, 1].item())
        for _ in range(400)
    ]
    # Beta(0.4, 0.4): mean 1/2, variance 1 / (4 * 1.8)
    assert abs(np.mean(kept) - 0.5) < 0.06 and abs(np.var(kept) - 1 / 7.2) < 0.02


def test_cutmix() -> None:
    images, classes = batch()
    generator = ox.Generator(0)
    for _ in range(50):
        mixed, soft = T.CutMix(num_classes=4)(images, classes, generator=generator)
        x, others, made = images.numpy(), np.roll(images.numpy(), 1, 0), mixed.numpy()
        cut = (made != x).any((0, 1))
        assert np.where(cut, others, x).tolist() == made.tolist()
        assert cut.sum() == cut.any(0).sum() * cut.any(1).sum()  # a rectangle
        assert abs(float(soft[1, 0].item()) - cut.mean()) < 1e-6 and np.allclose(soft.numpy().sum(1), 1)


def test_the_loss_takes_mixed_classes() -> None:
    images, classes = batch()
    _, soft = T.MixUp(num_classes=5)(images, classes)
    logits = ox.randn(6, 5, requires_grad=True)
    loss = ox.nn.CrossEntropyLoss()(logits, soft)
    scores = logits.detach().numpy().astype(float)
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    assert abs(loss.item() + (soft.numpy() * logs).sum(1).mean()) < 1e-5
    loss.backward()
    assert np.allclose(logits.grad.numpy(), (np.exp(logs) - soft.numpy()) / 6, atol=1e-6)


def test_batches_that_are_not_mixed() -> None:
    images, classes = batch()
    mix = T.MixUp(num_classes=3)
    for wrong, said in (
        ((images,), "images and classes"),
        ((images.numpy(), classes), "images and classes"),
        (((images * 255).to(ox.uint8), classes), "float images"),
        ((images[0], classes), "float images"),
        ((images, classes[:2]), "a class for each"),
        ((images, classes.float()), "a class for each"),
        ((images, classes), "0 to 2"),
    ):
        with pytest.raises(ox.errors.OxError) as error:
            mix(*wrong)
        assert said in str(error.value)
    with pytest.raises(ArgumentError, match="needs num_classes"):
        T.CutMix()(images, classes)
    with pytest.raises(ArgumentError, match="alpha above 0"):
        T.MixUp(alpha=0)
    assert repr(mix) == "MixUp(alpha=1.0, num_classes=3)"


# -- together with datasets ------------------------------------------------------------------------------------------


def test_a_dataset_takes_transforms_at_once(tmp_path: Any) -> None:
    records = RNG.integers(0, 10, (6, 3073), np.uint8)
    for name in CIFAR10.names[0]:
        (tmp_path / name).write_bytes(records.tobytes())
    pipeline = T.Compose([T.RandomCrop(32, padding=4), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
    data = CIFAR10(tmp_path, transform=pipeline)
    assert data[3][0].shape == (3, 32, 32)
    x, y = next(iter(DataLoader(data, batch_size=8)))
    assert x.shape == (8, 3, 32, 32) and x.dtype == ox.float32 and y.shape == (8,)
    still = CIFAR10(tmp_path, transform=T.ToTensor())
    x, _ = next(iter(DataLoader(still, batch_size=8)))
    assert x.tolist() == [still[i][0].tolist() for i in range(8)]
    assert MNIST.batch is CIFAR10.batch


@pytest.mark.parametrize("generator", [None, ox.Generator(0)])
def test_in_workers_the_loaders_seeds_decide(generator: Any) -> None:
    class Same(Dataset):
        turn = T.RandomRotation(180, "bilinear", generator=generator)

        def __getitem__(self, index: int) -> Any:
            return self.turn(PHOTO)

        def __len__(self) -> int:
            return 12

    def epochs() -> list[bytes]:
        ox.manual_seed(2)
        loader = DataLoader(Same(), batch_size=2, num_workers=2, timeout=60)
        return [image.tobytes() for _ in range(2) for batch in loader for image in batch.numpy()]

    images = epochs()
    assert len(set(images)) == 24  # no worker, batch or epoch repeats another one's numbers
    assert epochs() == images


def test_the_second_name() -> None:
    assert v2.RandomCrop is T.RandomCrop and v2.functional is F and set(T.__all__) <= set(dir(v2))
    assert ox.data.transforms is T
