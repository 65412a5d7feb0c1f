"""ResNet and the vision transformer beside PyTorch: the same names, and from one safetensors file the same outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import ox
from ox_models import resnet, vit

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")
torch.set_num_threads(1)  # its threads spin, and take many times as long where they must share their cores

from moved import moved  # noqa: E402 - it needs PyTorch, too

SMALL_VIT: dict[str, Any] = {"image_size": 32, "patch_size": 8, "channels": 3, "layers": 2, "heads": 4, "width": 32}
CASES: dict[str, tuple[str, Callable[[Any], Any], tuple[int, ...]]] = {
    "resnet18, 32×32": ("resnet", lambda page: page.resnet18(10, small=True), (3, 32, 32)),
    "resnet18, 224×224": ("resnet", lambda page: page.resnet18(1000), (3, 224, 224)),
    "resnet34, grey": ("resnet", lambda page: page.ResNet((3, 4, 6, 3), 7, width=16, channels=1), (1, 64, 64)),
    "vit": ("vit", lambda page: page.VisionTransformer(**SMALL_VIT), (3, 32, 32)),
    "vit of the recipe": ("vit", lambda page: page.model(), (1, 28, 28)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_of_pytorch_gives_its_outputs_and_gradients(case: str, tmp_path: Path) -> None:
    name, build, shape = CASES[case]
    torch.manual_seed(0)
    theirs = build(moved(name))
    for module in theirs.modules():  # a trained network's statistics, not those that each norm begins with
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    file = tmp_path / "weights.safetensors"
    save_file({key: value.numpy() for key, value in theirs.state_dict().items()}, file)
    ours = build({"resnet": resnet, "vit": vit}[name])
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(ox.load(file))

    images = np.random.RandomState(1).rand(2, *shape).astype(np.float32)
    with ox.no_grad(), torch.no_grad():
        got = ours.eval()(ox.from_numpy(images)).numpy()
        expected = theirs.eval()(torch.from_numpy(images)).numpy()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)

    # In float64: a ReLU's input at a rounding error from 0 decides otherwise on other processors, and PyTorch's float32
    # gradients of resnet18 are then 0.006 from its own in float64.
    images = images.astype(np.float64)
    ours.double().train()(ox.from_numpy(images)).square().mean().backward()
    theirs.double().train()(torch.from_numpy(images)).square().mean().backward()
    for (key, one), (_, two) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        scale = max(1e-6, float(two.grad.abs().max()))
        np.testing.assert_allclose(one.grad.numpy() / scale, two.grad.numpy() / scale, atol=1e-8, err_msg=key)


def test_pytorchs_encoder_layers_are_the_vision_transformers() -> None:
    """PyTorch has the block itself, under names of its own: a second witness, which shares no line with the page."""
    block = vit.EncoderBlock(16, 2, 32, 0.0)
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 32, 0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )
    names = {"self_attn": "self_attention", "linear1": "mlp.0", "linear2": "mlp.3", "norm1": "ln_1", "norm2": "ln_2"}
    state = {}
    for key, value in layer.state_dict().items():
        first, _, rest = key.partition(".")
        state[f"{names[first]}.{rest}"] = ox.from_numpy(value.numpy())
    block.load_state_dict(state)
    x = np.random.RandomState(2).randn(3, 5, 16).astype(np.float32)
    with ox.no_grad(), torch.no_grad():
        expected = layer(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(block(ox.from_numpy(x)).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_resnet18_written_out_from_torchvisions_names() -> None:
    """A second witness: the forward pass of the paper, from nothing but a state_dict with torchvision's names."""
    functional = torch.nn.functional
    model = resnet.resnet18(10, width=16)
    for module in model.modules():
        if isinstance(module, ox.nn.BatchNorm2d):
            ox.nn.init.normal_(module.running_mean, 0, 0.1)
            ox.nn.init.uniform_(module.running_var, 0.5, 2)
    state = {key: torch.from_numpy(value.detach().numpy()) for key, value in model.state_dict().items()}

    def conv(name: str, norm: str, x: Any, stride: int, padding: int) -> Any:
        x = functional.conv2d(x, state[f"{name}.weight"], stride=stride, padding=padding)
        mean, variance, weight, bias = (
            state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, variance, weight, bias)

    image = np.random.RandomState(1).rand(2, 3, 224, 224).astype(np.float32)
    x = functional.max_pool2d(conv("conv1", "bn1", torch.from_numpy(image), 2, 3).relu(), 3, 2, 1)
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            inside = conv(f"{at}.conv1", f"{at}.bn1", x, stride, 1).relu()
            inside = conv(f"{at}.conv2", f"{at}.bn2", inside, 1, 1)
            around = x if stride == 1 else conv(f"{at}.downsample.0", f"{at}.downsample.1", x, 2, 0)
            x = (inside + around).relu()
    expected = functional.linear(x.mean((2, 3)), state["fc.weight"], state["fc.bias"]).numpy()
    with ox.no_grad():
        np.testing.assert_allclose(model.eval()(ox.from_numpy(image)).numpy(), expected, rtol=1e-4, atol=1e-4)
