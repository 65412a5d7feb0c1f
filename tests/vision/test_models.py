"""Networks with torchvision's names: numbers of parameters as published, entries of a state_dict, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rows import rows

import ox
from ox.errors import ArgumentError
from ox.vision import models

# torchvision's documentation, "num_params" at 1,000 classes
PARAMETERS = {
    "alexnet": 61_100_840,
    "mobilenet_v2": 3_504_872,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
}
# of torchvision's files: the first, the last, and ones that only the right structure has
ENTRIES = {
    "alexnet": ("features.0.weight", "features.10.bias", "classifier.1.weight", "classifier.6.bias"),
    "mobilenet_v2": (
        "features.0.0.weight", "features.1.conv.0.0.weight", "features.1.conv.2.running_var",
        "features.2.conv.3.num_batches_tracked", "features.18.1.bias", "classifier.1.bias",
    ),
    "resnet18": ("conv1.weight", "layer2.0.downsample.1.running_mean", "layer4.1.bn2.num_batches_tracked", "fc.bias"),
    "resnet50": ("layer1.0.downsample.0.weight", "layer3.5.conv3.weight", "layer4.2.bn3.bias", "fc.weight"),
    "vgg11": ("features.0.weight", "features.18.bias", "classifier.0.weight", "classifier.6.bias"),
    "vgg16_bn": ("features.1.running_mean", "features.41.weight", "classifier.3.bias"),
}  # fmt: skip


@pytest.fixture
def without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The starting values of hundreds of millions of weights take longer than the rest."""
    for name in ("kaiming_normal_", "kaiming_uniform_", "normal_", "uniform_"):
        monkeypatch.setattr(ox.nn.init, name, lambda tensor, *_, **__: tensor)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str, without_values: None) -> None:
    state = getattr(models, name)()
    assert sum(p.numel() for p in state.parameters()) == PARAMETERS[name]
    assert set(ENTRIES.get(name, ())) <= set(state.state_dict())


SMALL: dict[str, Any] = {
    "resnet18": lambda: models.resnet18(num_classes=5),
    "bottleneck": lambda: models.ResNet(models.Bottleneck, [1, 1, 1, 1], num_classes=5, zero_init_residual=True),
    "mobilenet_v2": lambda: models.mobilenet_v2(num_classes=5, width_mult=0.25),
}


@pytest.mark.parametrize("name", SMALL)
def test_trains_and_exports(name: str, tmp_path: Path) -> None:
    model, images = SMALL[name](), ox.rand(4, 3, 64, 64)
    scores = model(images)
    scores.square().mean().backward()
    assert scores.shape == (4, 5) and all(p.grad is not None for p in model.parameters())
    ox.export.save(model.eval(), tmp_path / "x.onnx", images[:2])
    with ox.no_grad():
        assert ox.allclose(ox.export.load(tmp_path / "x.onnx")(images), model(images), atol=1e-4)


def test_the_mean_over_the_image_takes_any_size() -> None:
    model = models.mobilenet_v2(num_classes=3, width_mult=0.25).eval()
    assert model(ox.rand(1, 3, 96, 33)).shape == (1, 3)


@rows("arguments", [{"weights": "IMAGENET1K_V1"}, {"weights": "DEFAULT"}, {"pretrained": True}])
@rows("name", ["resnet18", "vgg11_bn", "alexnet", "mobilenet_v2"])
def test_nothing_is_downloaded(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"{name} downloads no weights") as caught:
        getattr(models, name)(**arguments)
    assert "ox.load" in str(caught.value.hint) and "test_models.py" in str(caught.value)


def test_pretrained_false_and_progress() -> None:
    assert models.mobilenet_v2(pretrained=False, progress=True, width_mult=0.25).last_channel == 1280


def test_a_missing_one_is_an_error_that_says_what_is_there() -> None:
    with pytest.raises(AttributeError, match=r"'densenet121': dir\(ox.vision.models\)"):
        models.densenet121  # noqa: B018
    with pytest.raises(ImportError, match=r"densenet121': dir\(ox.vision.models\)"):
        from ox.vision.models import densenet121  # noqa: F401
