"""The recipes with a ResNet-18 and a vision transformer: networks, data, the three commands."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
from ox.data import DataLoader
from ox.errors import RecipeError
from ox_models import resnet18, resnet18_photos, vit
from ox_models.photos_data import SIDE, SURFACES, LeftHalves, crops, square
from ox_models.resnet import BasicBlock
from ox_models.resnet import resnet18 as network


def parameters(model: ox.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# -- networks ---------------------------------------------------------------------------------------------------------


def test_a_resnet_has_torchvisions_size_and_names() -> None:
    model = network(1000)
    assert parameters(model) == 11_689_512  # as torchvision counts
    names = list(model.state_dict())
    assert len(names) == 122
    assert names[0] == "conv1.weight"
    assert names[-2:] == ["fc.weight", "fc.bias"]
    assert "layer2.0.downsample.0.weight" in names
    assert "layer1.0.downsample.0.weight" not in names


def test_stages_halve_the_image() -> None:
    sizes = []
    for small, size in ((True, 32), (False, 224)):
        model = network(10, small=small, width=4)
        image = ox.rand(1, 3, size, size)
        x = model.maxpool(model.relu(model.bn1(model.conv1(image))))
        for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
            x = stage(x)
            sizes.append((x.shape[1], x.shape[-1]))
        assert model(image).shape == (1, 10)
    assert sizes == [(4, 32), (8, 16), (16, 8), (32, 4), (4, 56), (8, 28), (16, 14), (32, 7)]


def test_a_block_of_zeros_does_nothing() -> None:
    block = BasicBlock(8, 8)
    ox.nn.init.zeros_(block.bn2.weight)
    x = ox.rand(2, 8, 5, 5)
    assert np.array_equal(block(x).detach().numpy(), x.numpy())


def test_a_vision_transformer_has_torchvisions_size_and_names() -> None:
    small = vit.VisionTransformer(image_size=32, patch_size=8, channels=3, layers=2, heads=2, width=16, mlp=32)
    block = "encoder.layers.encoder_layer_0"
    inside = [f"{block}.{name}.{kind}" for name in ("ln_1", "self_attention.out_proj", "ln_2", "mlp.0", "mlp.3")
              for kind in ("weight", "bias")]  # fmt: skip
    inside += [f"{block}.self_attention.in_proj_{kind}" for kind in ("weight", "bias")]
    rest = ["class_token", "encoder.pos_embedding"]
    rest += [f"{name}.{kind}" for name in ("conv_proj", "encoder.ln", "heads.head") for kind in ("weight", "bias")]
    expected = {*rest, *inside, *(name.replace("layer_0", "layer_1") for name in inside)}
    assert set(small.state_dict()) == expected
    # one layer of the base size, and how much a second one adds, are enough to know the twelve
    one, two = (vit.VisionTransformer(224, 16, 3, n, 12, 768, 3072, 1000) for n in (1, 2))
    assert parameters(one) + 11 * (parameters(two) - parameters(one)) == 86_567_656  # as torchvision counts


def test_patches_are_seen_in_their_places() -> None:
    """Without positions, patches in another order would give the same answer."""
    model = vit.model().eval()
    image = ox.rand(1, 1, 28, 28)
    moved = ox.from_numpy(np.roll(image.numpy(), 7, axis=3))
    with ox.no_grad():
        assert not np.allclose(model(image).numpy(), model(moved).numpy(), atol=1e-5)
        model.encoder.pos_embedding.zero_()
        np.testing.assert_allclose(model(image).numpy(), model(moved).numpy(), rtol=1e-4, atol=1e-5)


# -- augmentation -----------------------------------------------------------------------------------------------------


def test_small_images_are_mirrored_and_moved_within_their_margin() -> None:
    images = np.zeros((200, 1, 32, 32), np.float32)
    images[:, :, 2:30, 2:30] = np.random.RandomState(0).rand(200, 1, 28, 28)
    varied, answers = resnet18.augment((ox.from_numpy(images), ox.arange(200)), ox.Generator(3))
    assert answers.tolist() == list(range(200))
    seen = set()
    for image, result in zip(images[:, 0], varied.numpy()[:, 0], strict=True):
        wide = np.pad(image[2:30, 2:30], 4)
        fits = [
            (turned, down, across)
            for turned, whole in enumerate((wide, wide[:, ::-1]))
            for down in range(5)
            for across in range(5)
            if np.array_equal(whole[down : down + 32, across : across + 32], result)
        ]
        assert len(fits) == 1
        seen.update(fits)
    assert len(seen) > 40  # of 50
    assert varied.numpy().sum() == pytest.approx(images.sum(), rel=1e-5)  # nothing left the image


# -- photographs ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_photograph_do_not_overlap() -> None:
    """A photograph whose quarters are 0 (upper left), 64 (lower left), 128 and 192: crops never mix them."""
    photograph = np.repeat(np.repeat(np.array([[0, 128], [64, 192]], np.uint8), 256, 0), 256, 1)
    halves = LeftHalves([photograph])
    assert len(halves) == 60
    assert set(np.unique(halves[7][0])) == {0, 64}
    for top, level in ((0, 128), (256, 192)):
        images = crops([photograph], top).tensors[0].numpy()
        assert images.shape == (9, 3, 224, 224)
        assert set(np.unique(images)) == {np.float32(level / 255)}


def test_a_photograph_becomes_square_and_grey() -> None:
    wide = np.zeros((300, 500, 3), np.uint8)
    wide[:, 100:400, 1] = 255  # the middle square, in green
    grey = square(wide)
    assert (grey.shape, grey.dtype) == ((SIDE, SIDE), np.uint8)
    assert 140 < grey.min() == grey.max() < 160


def test_without_scikit_image_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "skimage":
            raise ImportError("No module named 'skimage'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RecipeError, match="pip install scikit-image"):
        resnet18_photos.data()


def test_pieces_of_photographs() -> None:
    pytest.importorskip("skimage", reason="the photographs come with scikit-image")
    train, validation, held_back = resnet18_photos.data()
    assert (len(train), len(validation), len(held_back)) == (480, 72, 72)
    assert np.bincount(held_back.tensors[1].numpy()).tolist() == [9] * len(SURFACES)
    batch = next(iter(DataLoader(train, batch_size=24)))
    one, two, again = (resnet18_photos.augment(batch, ox.Generator(seed)) for seed in (1, 2, 1))
    assert (one[0].shape, one[0].dtype) == ((24, 3, 224, 224), ox.float32)
    assert one[1].tolist() == [*range(8), *range(8), *range(8)]
    assert np.array_equal(one[0].numpy(), again[0].numpy())
    assert not np.array_equal(one[0].numpy(), two[0].numpy())
    assert not np.array_equal(one[0].numpy()[:8], one[0].numpy()[8:16])  # the same halves, other pieces


# -- the three commands -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fashion_images")
@pytest.mark.parametrize("page", ["resnet18", "vit"])
@pytest.mark.slow
def test_small_images_trained_exported_served(page: str, three_commands: Callable[..., dict]) -> None:
    assert three_commands(page, limit=32)["held_back"]["count"] == 32


@pytest.mark.slow
def test_photographs_trained_exported_served(three_commands: Callable[..., dict]) -> None:
    pytest.importorskip("skimage", reason="the photographs come with scikit-image")
    assert three_commands("resnet18_photos", limit=24)["held_back"]["count"] == 24
