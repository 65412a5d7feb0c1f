"""Methods that public code replaces in its modules, each with what it is replaced for."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from ox.nn.modules.batchnorm import _BatchNorm
from ox.nn.modules.conv import _ConvNd
from ox.nn.modules.instancenorm import _InstanceNorm

import ox
import ox.nn.functional as F
from ox import nn, optim
from ox.errors import ArgumentError, LoadError, ShapeError


class FrozenBackbone(nn.Sequential):
    """A network whose batch norms stay in evaluation."""

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


def test_frozen_batch_norm_keeps_its_statistics_within_another_module() -> None:
    norm = nn.BatchNorm2d(3)
    model = nn.Sequential(FrozenBackbone(norm), nn.BatchNorm2d(3))
    model.train()
    assert not norm.training and model[1].training
    model(ox.randn(4, 3, 5, 5) + 7)
    assert (norm.running_mean.array == 0).all() and norm.num_batches_tracked.item() == 0
    assert (model[1].running_mean.array != 0).all()


class LoRA(nn.Linear):
    """Adds a product of two small matrices, which evaluation merges into the weight."""

    def __init__(self, features: int) -> None:
        super().__init__(features, features)
        self.a, self.b = nn.Parameter(ox.randn(1, features)), nn.Parameter(ox.randn(features, 1))
        self.merged = False

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        if mode == self.merged:
            sign = -1 if mode else 1
            self.weight.data += sign * (self.b @ self.a).detach()
            self.merged = not mode
        return self

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if self.merged else y + x @ (self.b @ self.a).t()


def test_lora_merges_in_evaluation_and_comes_apart_in_training() -> None:
    model, x = nn.Sequential(LoRA(4), nn.ReLU()), ox.randn(2, 4)
    before, expected = model[0].weight.detach().clone(), model(x)
    model.eval()
    assert model[0].merged and ox.allclose(model(x), expected, atol=1e-5)
    model.train()
    assert not model[0].merged and ox.allclose(model[0].weight, before, atol=1e-6)


def test_train_takes_a_bool() -> None:
    with pytest.raises(ArgumentError, match="mode must be True or False"):
        nn.ReLU().train("yes")  # type: ignore[arg-type]


class StandardizedConv(nn.Conv2d):
    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        weight = weight - weight.mean(dim=(1, 2, 3), keepdim=True)
        return super()._conv_forward(input, weight / weight.std(dim=(1, 2, 3), keepdim=True), bias)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "circular"])
def test_weight_standardized_convolution(mode: str) -> None:
    conv = StandardizedConv(3, 4, 3, padding=1, padding_mode=mode)
    plain = nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode)
    w = conv.weight.detach()
    w = w - w.mean(dim=(1, 2, 3), keepdim=True)
    plain.load_state_dict({"weight": w / w.std(dim=(1, 2, 3), keepdim=True), "bias": conv.bias.detach()})
    x = ox.randn(2, 3, 6, 6)
    assert ox.allclose(conv(x), plain(x), atol=1e-5)


def test_a_convolution_that_is_changed_after_it_was_made() -> None:
    x, conv = ox.randn(1, 2, 8, 8), nn.Conv2d(2, 2, 3, stride=2, padding=1)
    conv(x)
    conv.stride, conv.dilation, conv.padding = (1, 1), (2, 2), (2, 2)
    assert ox.equal(conv(x), F.conv2d(x, conv.weight, conv.bias, 1, 2, 2))
    conv.padding_mode, conv._reversed_padding_repeated_twice = "circular", [2, 2, 2, 2]
    padded = F.pad(x, (2, 2, 2, 2), "circular")
    assert ox.equal(conv(x), F.conv2d(padded, conv.weight, conv.bias, 1, 0, 2))


class Coordinates(_ConvNd):
    """A layer of one's own above PyTorch's base of all convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 4, (3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, True, "zeros")

    def forward(self, x: Any) -> Any:
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def test_the_bases_of_layers() -> None:
    assert Coordinates(2)(ox.ones(1, 2, 5, 5)).shape == (1, 4, 5, 5)
    assert isinstance(nn.ConvTranspose1d(1, 1, 1), _ConvNd)

    class AnyRank(_BatchNorm):
        def _check_input_dim(self, input: Any) -> None:
            if input.dim() < 3:
                raise ValueError("at least three dimensions")

    norm = AnyRank(3)
    assert norm(ox.randn(2, 3, 4)).shape == (2, 3, 4) and norm(ox.randn(2, 3, 4, 4, 4)).dim() == 5
    with pytest.raises(ValueError, match="at least three"):
        norm(ox.randn(2, 3))

    class Rows(_InstanceNorm):
        def _check_input_dim(self, input: Any) -> None:
            return None

        def _get_no_batch_dim(self) -> int:
            return 2

    x = ox.randn(3, 5)
    assert ox.allclose(Rows(3)(x), nn.InstanceNorm1d(3)(x)) and Rows(3)(x[None]).shape == (1, 3, 5)


def test_norms_without_their_statistics() -> None:
    x = ox.randn(8, 3) * 3 + 1
    norm = nn.BatchNorm1d(3)
    norm.track_running_stats = False
    norm(x)
    assert (norm.running_mean.array == 0).all() and norm.num_batches_tracked.item() == 0
    norm.running_mean = norm.running_var = None
    assert ox.allclose(norm.eval()(x).mean(0), ox.zeros(3), atol=1e-5)


class PreNorm(nn.TransformerEncoderLayer):
    def _sa_block(self, x: Any, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Any:
        return super()._sa_block(self.norm1(x), attn_mask, key_padding_mask, is_causal) * 0.5

    def _ff_block(self, x: Any) -> Any:
        return super()._ff_block(x) + 1


@pytest.mark.parametrize("training", [True, False])
def test_blocks_of_a_transformer(training: bool) -> None:
    layer = PreNorm(4, 2, 8, dropout=0.0).train(training)
    x = ox.randn(5, 2, 4)
    inner = layer.norm1(x)
    attended = layer.self_attn(inner, inner, inner, need_weights=False)[0] * 0.5
    h = layer.norm1(x + attended)
    wide = layer.linear2(F.relu(layer.linear1(h)))
    with ox.no_grad():
        assert ox.allclose(layer(x), layer.norm2(h + wide + 1), atol=1e-5)


class Renamed(nn.Linear):
    """Reads states in which its weight had another name."""

    _version = 2

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        if local_metadata.get("version", 1) < 2:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel").t()
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)
        self.loaded = float(self.weight.sum().item())


def test_a_module_that_reads_its_old_states() -> None:
    model = nn.Sequential(Renamed(2, 3))
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    old = {"0.kernel": ox.tensor(kernel), "0.bias": ox.zeros(3)}
    assert not any(model.load_state_dict(old))
    assert (model[0].weight.array == kernel.T).all() and model[0].loaded == 15 and "0.kernel" in old
    again = nn.Sequential(Renamed(2, 3))
    state = model.state_dict()
    assert state._metadata["0"] == {"version": 2}
    again.load_state_dict(copy.deepcopy(pickle.loads(pickle.dumps(state))))
    assert (again[0].weight.array == kernel.T).all()
    with pytest.raises(LoadError, match="does not fit"):
        again.load_state_dict({**old, "more": ox.zeros(1)})


def test_a_state_goes_through_a_file_with_its_versions(tmp_path: Any) -> None:
    model = nn.Sequential(Renamed(2, 3))
    ox.save({"model": model.state_dict()}, tmp_path / "a.safetensors")
    again = nn.Sequential(Renamed(2, 3))
    again.load_state_dict(ox.load(tmp_path / "a.safetensors")["model"])
    assert ox.equal(again[0].weight, model[0].weight)


def test_a_state_of_before_there_was_a_count_of_batches() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    old = {name: value for name, value in model.state_dict().items() if "num_batches" not in name}
    assert not any(model.load_state_dict(old))
    new = model.state_dict()
    del new["0.num_batches_tracked"]
    with pytest.raises(LoadError, match="num_batches_tracked"):
        model.load_state_dict(new)


def test_a_module_that_writes_its_state_otherwise() -> None:
    class Halved(nn.Linear):
        def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "weight"] = destination[prefix + "weight"].half()

    state = nn.Sequential(Halved(2, 2)).state_dict()
    assert state["0.weight"].dtype == ox.float16 and state["0.bias"].dtype == ox.float32


def test_hooks_of_the_older_kind() -> None:
    layer = nn.Linear(2, 2, bias=False)
    model = nn.Sequential(layer)
    seen: list[Any] = []
    layer._register_load_state_dict_pre_hook(lambda state, prefix, *rest: seen.append((prefix, sorted(state))))
    layer._register_load_state_dict_pre_hook(lambda m, *rest: seen.append(m), with_module=True)
    model.load_state_dict(model.state_dict())
    assert seen == [("0.", ["0.weight"]), layer]
    twin = copy.deepcopy(model)
    twin.load_state_dict(model.state_dict())
    assert seen[-1] is twin[0]
    model._register_state_dict_hook(lambda m, state, prefix, meta: {"all": len(state)})
    assert model.state_dict() == {"all": 1}


class Anchors(nn.Module):
    """Keeps tensors that are neither parameters nor buffers, and moves them with the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(ox.ones(2))
        self.grid = ox.arange(3).float()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self.grid = fn(self.grid)
        return self


def test_a_child_that_moves_more_than_its_parameters() -> None:
    model = nn.Sequential(Anchors())
    weight = model[0].weight
    optimizer = optim.SGD(model.parameters(), 0.1)
    assert model.double() is model and model[0].grid.dtype == ox.float64 and weight.dtype == ox.float64
    model.to(ox.float32)
    assert model[0].weight is weight and optimizer.param_groups[0]["params"][0] is weight
    assert model[0].grid.dtype == ox.float32
    model.half()
    assert model[0].grid.dtype == ox.float16


def test_a_subclass_around_every_call() -> None:
    class Timed(nn.Linear):
        calls = 0

        def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super()._call_impl(*args, **kwargs)

    class Loud(nn.Linear):
        def __call__(self, x: Any) -> Any:
            return super().__call__(x) + 1

    seen: list[Any] = []
    for layer in (Timed(2, 2), Loud(2, 2)):
        layer.register_forward_hook(lambda m, args, y: seen.append(type(m).__name__))
        layer(ox.ones(1, 2))
    assert seen == ["Timed", "Loud"]


def test_checks_of_recurrent_layers() -> None:
    class Free(nn.GRU):
        def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
            seen.append(tuple(hidden.shape))

    class Strict(nn.LSTM):
        def check_hidden_size(self, hx: Any, expected_hidden_size: Any, msg: str = "") -> None:
            raise ShapeError("no states, please")

    seen: list[Any] = []
    Free(3, 4)(ox.ones(5, 2, 3))
    assert seen == [(1, 2, 4)]
    with pytest.raises(ShapeError, match="no states"):
        Strict(3, 4)(ox.ones(5, 2, 3))


def test_initial_values_of_a_subclass() -> None:
    class Ones(nn.LayerNorm):
        def reset_parameters(self) -> None:
            nn.init.constant_(self.weight, 0.25)

    assert (Ones(3).weight.array == 0.25).all()


def test_state_of_a_copied_module() -> None:
    class Old(nn.Linear):
        def __setstate__(self, state: Any) -> None:
            super().__setstate__(state)
            self.fresh = True

    assert copy.deepcopy(Old(1, 1)).fresh


def test_the_files_of_the_bases() -> None:
    from ox.nn.modules.conv import _pair
    from ox.nn.modules.dropout import _DropoutNd
    from ox.nn.modules.padding import _CircularPadNd
    from ox.nn.modules.pooling import _AdaptiveAvgPoolNd, _LPPoolNd
    from ox.nn.modules.transformer import _get_clones

    assert _pair(3) == (3, 3) and issubclass(nn.Dropout2d, _DropoutNd) and not issubclass(nn.Dropout2d, nn.Dropout)
    assert issubclass(nn.CircularPad1d, _CircularPadNd) and issubclass(nn.LPPool2d, _LPPoolNd)
    assert issubclass(nn.AdaptiveAvgPool2d, _AdaptiveAvgPoolNd) and len(_get_clones(nn.ReLU(), 3)) == 3
    assert not isinstance(nn.SiLU(), nn.ReLU) and isinstance(nn.ZeroPad2d(1), nn.ConstantPad2d)


def test_a_hook_of_every_module_that_is_always_called() -> None:
    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            raise KeyError("broken")

    seen: list[Any] = []
    hook = nn.modules.module.register_module_forward_hook(lambda m, args, y: seen.append(y), always_call=True)
    with pytest.raises(KeyError):
        Broken()(1)
    hook.remove()
    with pytest.raises(KeyError):
        Broken()(1)
    assert seen == [None]
