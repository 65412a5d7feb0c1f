"""Functions of PyTorch's own namespace that are methods or layers elsewhere: the same values, the same signatures."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_value, split, torch

import ox
from ox.nn.functional import torch_level
from ox.tensors import method_functions

R = np.random.default_rng(3)
ARRAYS = {
    "x": R.random((2, 3, 4), dtype=np.float32) * 0.8 + 0.1,
    "y": R.random((2, 3, 4), dtype=np.float32) + 1,
    "i": np.array([[4, 6], [9, 3]]),
    "j": np.array([[2, 4], [3, 9]]),
    "k": np.array([[2, 4], [3, 6]]),
    "a": R.random((4, 5), dtype=np.float32),
    "b": R.random((4, 5), dtype=np.float32) + 0.5,
    "c": R.random((4, 5), dtype=np.float32),
    "s": np.array([1.0, -1, 1, -1], np.float32),
    "z": R.random((2, 3, 5, 5), dtype=np.float32),
    "w": R.random(3, dtype=np.float32) + 0.5,
    "m": R.random((3, 3), dtype=np.float32),
    "v": R.random(3, dtype=np.float32),
    "table": R.random((7, 3), dtype=np.float32),
    "grid": R.random((2, 4, 4, 2), dtype=np.float32) * 2 - 1,
    "theta": R.random((2, 2, 3), dtype=np.float32),
}
WITH_ONE = {"clamp_": "0.3, 0.6", "clip_": "0.3", "clamp_max_": "0.5", "clamp_min_": "0.5", "fill_": "2", "xlogy_": "y"}
SPECIAL = {
    "addmv_": "T.addmv_(v, m, w)", "gcd_": "T.gcd_(i, j)", "lcm_": "T.lcm_(i, j)",
    "index_put_": "T.index_put_(a, (i[:, 0] // 4,), T.tensor(3.0))", "is_signed": "T.is_signed(x)",
    "get_device": "T.get_device(x)", "detach": "T.detach(x)", "detach_": "T.detach_(x)",
    "unsafe_split_with_sizes": "T.unsafe_split_with_sizes(a, [1, 4], 1)", "arccosh_": "T.arccosh_(y)",
    "acosh_": "T.acosh_(y)", "ldexp_": "T.ldexp_(x, T.tensor(3))",
}  # fmt: skip


@pytest.mark.parametrize("name", method_functions.NAMES)
def test_a_method_as_a_function(name: str) -> None:
    check_value(SPECIAL.get(name, f"T.{name}(x{f', {WITH_ONE[name]}' if name in WITH_ONE else ''})"), ARRAYS, 5e-6)


def test_every_method_of_pytorch_that_is_there_is_a_function_too() -> None:
    missing = [
        name for name in dir(torch)
        if name[0] != "_" and callable(getattr(torch, name)) and callable(getattr(ox.Tensor, name, None))
        and not hasattr(ox, name)
    ]  # fmt: skip
    assert not set(missing) - {"conj_physical_", "range"}


@pytest.mark.parametrize("expression", split("""
    T.dropout(x, 0.5, False); T.alpha_dropout(x, 0.5, False); T.feature_dropout(x, 0.5, False)
    T.feature_alpha_dropout(x, 0.5, False); T.dropout_(x, 0.5, False); T.dropout(x, 1.0, True)
    T.embedding(table, k); T.embedding(table, k, 3); T.batch_norm(z, w, w, w, w, False, 0.1, 1e-5, True)
    T.batch_norm(z, None, None, None, None, True, 0.1, 1e-5, True)
    T.instance_norm(z, w, w, None, None, True, 0.1, 1e-5, False); T.adaptive_max_pool1d(x, 2)
    T.grid_sampler(z, grid, 0, 0, False); T.grid_sampler(z, grid, 1, 1, True)
    T.grid_sampler_2d(z, grid, 2, 2, True); T.affine_grid_generator(theta, [2, 3, 4, 5], False)
    T.constant_pad_nd(x, (1, 2), 0.5); T.constant_pad_nd(x, (1, 1, 0, 2))
    T.binary_cross_entropy_with_logits(a, c); T.binary_cross_entropy_with_logits(a, c, b, None, 0); T.kl_div(a, c)
    T.kl_div(a, c, 2, log_target=True); T.cosine_embedding_loss(a, b, s); T.cosine_embedding_loss(a, b, s, 0.1, 0)
    T.margin_ranking_loss(a, b, c); T.margin_ranking_loss(a, b, c, 0.2, 2)
    T.hinge_embedding_loss(a, (c > 0.5) * 2 - 1); T.poisson_nll_loss(a, b, True, False, 1e-8, 1)
    T.triplet_margin_loss(a, b, c); T.triplet_margin_loss(a, b, c, 0.5, 1, 1e-6, True, 0)
    T.frobenius_norm(a, [0, 1]); T.frobenius_norm(a, 1, True); T.norm_except_dim(z, 2, 1); T.norm_except_dim(a)
    T.norm_except_dim(a, 2, -1); T.is_same_size(a, b); T.is_same_size(a, x); T.is_distributed(a); T.is_neg(a)
    T.is_anomaly_enabled(); T.ctc_loss(a.log_softmax(-1)[:, None], T.tensor([[1, 2]]), (4,), (2,))
    T.get_num_interop_threads() > 0; T.is_autocast_cpu_enabled(); str(T.get_autocast_cpu_dtype()).split(".")[-1]
    str(T.get_autocast_gpu_dtype()).split(".")[-1]; T.strided == x.layout; isinstance(x.layout, T.layout)
    x.output_nr; x.is_mkldnn; x.is_sparse_csr; T.cuda.device_count() >= 0
"""))  # fmt: skip
def test_a_layer_as_pytorchs_own_function(expression: str) -> None:
    check_value(expression, ARRAYS, 1e-5)


def test_training_draws() -> None:
    ox.manual_seed(0)
    x = ox.ones(50, 40, 3)
    assert set(np.unique(ox.dropout(x, 0.5, True).numpy())) == {0, 2}
    channels = ox.feature_dropout(x, 0.5, True)
    assert bool((channels[..., :1] == channels).all()) and 0 < (channels == 0).float().mean().item() < 1


def test_a_number_that_names_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reduction is a number[\s\S]*1 \(mean\)"):
        ox.kl_div(ox.ones(2), ox.ones(2), 3)
    with pytest.raises(ValueError, match="interpolation_mode is a number"):
        ox.grid_sampler(ox.ones(1, 1, 2, 2), ox.ones(1, 2, 2, 2), 7, 0, True)
    assert all(callable(getattr(ox, name)) for name in dir(torch_level) if name in ox._NATIVE)
