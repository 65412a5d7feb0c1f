"""torch.nn.utils: clipping, vectors, normalized weights, parametrizations, fusion, pruning, functional calls."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

pytest.importorskip("torch.nn.utils.prune")

ours, theirs = nn.utils, torch.nn.utils
pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")


def pair(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The same layer with the same values on both sides."""
    there = getattr(torch.nn, name)(*args, **kwargs)
    here = getattr(nn, name)(*args, **kwargs)
    copy(here, there)
    return here, there


def copy(here: Any, there: Any) -> None:
    here.load_state_dict({k: v.numpy().copy() for k, v in there.state_dict().items()})


def close(a: Any, b: Any, **tolerance: float) -> None:
    a, b = (np.asarray(x.detach()) for x in (a, b))
    assert a.shape == b.shape
    assert np.allclose(a, b, **{"rtol": 1e-4, "atol": 1e-5, **tolerance}), np.abs(a - b).max()


def same(here: Any, there: Any) -> None:
    ours_, theirs_ = here.state_dict(), there.state_dict()
    assert set(ours_) == set(theirs_)
    for name, value in theirs_.items():
        close(ours_[name], value)


def run_both(here: Any, there: Any, shape: tuple[int, ...], seed: int = 0) -> None:
    """Forward and backward; outputs, gradients and state agree."""
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    a, b = here(ox.tensor(x)), there(torch.tensor(x))
    close(a, b)
    here.zero_grad()
    there.zero_grad()
    (a * a).sum().backward()
    (b * b).sum().backward()
    for (name, p), (other, q) in zip(here.named_parameters(), there.named_parameters(), strict=True):
        assert name == other
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            close(p.grad, q.grad, rtol=1e-3, atol=1e-4)
    same(here, there)


# clipping and vectors ----------------------------------------------------------------------------------------------


def gradients() -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(s), np.float32) for s in [(3, 4), (5,), ()]]
    here = [nn.Parameter(np.zeros_like(a)) for a in arrays]
    there = [torch.zeros(a.shape, requires_grad=True) for a in arrays]
    for p, q, a in zip(here, there, arrays, strict=True):
        p.grad, q.grad = ox.tensor(a.copy()), torch.tensor(a)
    return here, there


@pytest.mark.parametrize("kind", [2.0, 1.0, 3.0, 0.5, float("inf"), -float("inf")])
@pytest.mark.parametrize("most", [0.5, 1000.0])
def test_norms(kind: float, most: float) -> None:
    here, there = gradients()
    close(
        ours.get_total_norm([p.grad for p in here], kind),
        theirs.get_total_norm([p.grad for p in there], kind),
        rtol=1e-5,
    )
    close(ours.clip_grad_norm_(here, most, kind), theirs.clip_grad_norm_(there, most, kind), rtol=1e-5)
    for p, q in zip(here, there, strict=True):
        close(p.grad, q.grad)
    ours.clip_grads_with_norm_(here, 0.1, ox.tensor(2.0))
    theirs.clip_grads_with_norm_(there, 0.1, torch.tensor(2.0))
    ours.clip_grad_value_(here, 0.01)
    theirs.clip_grad_value_(there, 0.01)
    for p, q in zip(here, there, strict=True):
        close(p.grad, q.grad, atol=1e-7)


def test_nothing_to_clip() -> None:
    assert ours.clip_grad_norm_([], 1.0).item() == theirs.clip_grad_norm_([], 1.0).item() == 0


def test_not_finite() -> None:
    here, there = gradients()
    here[1].grad[0], there[1].grad[0] = float("inf"), float("inf")
    for room, params in ((ours, here), (theirs, there)):
        with pytest.raises(RuntimeError):
            room.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)


def test_vectors() -> None:
    here, there = pair("Linear", 3, 2)
    close(ours.parameters_to_vector(here.parameters()), theirs.parameters_to_vector(there.parameters()))
    vector = np.arange(8, dtype=np.float32)
    ours.vector_to_parameters(ox.tensor(vector), here.parameters())
    theirs.vector_to_parameters(torch.tensor(vector), there.parameters())
    same(here, there)
    (ours.parameters_to_vector(here.parameters()) ** 2).sum().backward()
    assert np.allclose(here.weight.grad.array, 2 * here.weight.array)
    with pytest.raises(ValueError):
        ours.vector_to_parameters(ox.zeros(7), here.parameters())


# normalized weights ------------------------------------------------------------------------------------------------

LAYERS: list[Any] = [
    ("Linear", (4, 3), (5, 4)),
    ("Conv2d", (2, 4, 3), (2, 2, 6, 6)),
    ("ConvTranspose1d", (3, 2, 3), (2, 3, 7)),
]
if not hasattr(nn, "ConvTranspose1d"):
    LAYERS.pop()


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer[0])
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("new", [False, True], ids=["hook", "parametrization"])
def test_weight_norm(layer: Any, dim: int | None, new: bool) -> None:
    name, args, shape = layer
    here, there = pair(name, *args)
    rooms = (ours.parametrizations, theirs.parametrizations) if new else (ours, theirs)
    rooms[0].weight_norm(here, dim=dim)
    rooms[1].weight_norm(there, dim=dim)
    run_both(here, there, shape)
    for p, q in zip(here.parameters(), there.parameters(), strict=True):
        p.array *= 1.5
        q.data *= 1.5
    run_both(here, there, shape, 1)
    if new:
        ours.parametrize.remove_parametrizations(here, "weight")
        theirs.parametrize.remove_parametrizations(there, "weight")
    else:
        ours.remove_weight_norm(here)
        theirs.remove_weight_norm(there)
        with pytest.raises(ValueError):
            ours.remove_weight_norm(here)
        with pytest.raises(ValueError):
            theirs.remove_weight_norm(there)
    same(here, there)
    x = np.ones(shape, np.float32)
    close(here(ox.tensor(x)), there(torch.tensor(x)))


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer[0])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("new", [False, True], ids=["hook", "parametrization"])
def test_spectral_norm(layer: Any, times: int, new: bool) -> None:
    name, args, shape = layer
    here, there = pair(name, *args)
    rooms = (ours.parametrizations, theirs.parametrizations) if new else (ours, theirs)
    rooms[0].spectral_norm(here, n_power_iterations=times)
    rooms[1].spectral_norm(there, n_power_iterations=times)
    copy(here, there)
    run_both(here, there, shape)
    run_both(here, there, shape, 1)
    here.eval()
    there.eval()
    run_both(here, there, shape, 2)
    if new:
        ours.parametrize.remove_parametrizations(here, "weight")
        theirs.parametrize.remove_parametrizations(there, "weight")
    else:
        ours.remove_spectral_norm(here)
        theirs.remove_spectral_norm(there)
    same(here, there)


@pytest.mark.parametrize("size", [(4, 4), (6, 3), (3, 5)], ids=str)
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
def test_orthogonal(size: tuple[int, int], kind: str) -> None:
    here, there = pair("Linear", *size, bias=False)
    ours.parametrizations.orthogonal(here, orthogonal_map=kind)
    theirs.parametrizations.orthogonal(there, orthogonal_map=kind)
    copy(here, there)
    close(here.weight, there.weight)
    value = np.random.default_rng(0).standard_normal(size[::-1]).astype(np.float32)
    if kind == "householder":  # the diagonal holds signs
        value[np.arange(min(size)), np.arange(min(size))] = [1, -1, 1, -1][: min(size)]
    here.parametrizations.weight.original.array[...] = value
    there.parametrizations.weight.original.data[...] = torch.tensor(value)
    run_both(here, there, (2, size[0]))
    weight = here.weight.array if size[0] >= size[1] else here.weight.array.T
    assert np.allclose(weight @ weight.T, np.eye(len(weight)), atol=1e-5)


@pytest.mark.parametrize("size", [(4, 4), (6, 3), (3, 5)], ids=str)
def test_orthogonal_without_a_base(size: tuple[int, int]) -> None:
    here, there = pair("Linear", *size, bias=False)
    ours.parametrizations.orthogonal(here, orthogonal_map="householder", use_trivialization=False)
    theirs.parametrizations.orthogonal(there, orthogonal_map="householder", use_trivialization=False)
    same(here, there)
    run_both(here, there, (2, size[0]))
    value, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((max(size), min(size))))
    value = np.ascontiguousarray(value.astype(np.float32).reshape(max(size), min(size)))
    value = value.T if size[0] > size[1] else value
    here.weight, there.weight = ox.tensor(value), torch.tensor(value)
    close(here.weight, value_of(value))
    close(there.weight, value_of(value))


def value_of(array: Any) -> Any:
    return torch.tensor(np.ascontiguousarray(array))


# fusion ------------------------------------------------------------------------------------------------------------

FUSED: list[Any] = [
    ("Conv2d", (3, 4, 3), "BatchNorm2d", 4, (2, 3, 6, 6)),
    ("Conv1d", (3, 4, 3), "BatchNorm1d", 4, (2, 3, 8)),
    ("Linear", (3, 4), "BatchNorm1d", 4, (5, 3)),
]


@pytest.mark.parametrize("case", [c for c in FUSED if hasattr(nn, c[0])], ids=lambda c: c[0])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_fusion(case: Any, bias: bool, affine: bool) -> None:
    name, args, norm, features, shape = case
    here, there = pair(name, *args, bias=bias)
    bn_there = getattr(torch.nn, norm)(features, affine=affine)
    bn = getattr(nn, norm)(features, affine=affine)
    rng = np.random.default_rng(0)
    bn_there.running_mean[...] = torch.tensor(rng.standard_normal(features))
    bn_there.running_var[...] = torch.tensor(rng.random(features) + 0.5)
    if affine:
        bn_there.weight.data[...] = torch.tensor(rng.standard_normal(features))
        bn_there.bias.data[...] = torch.tensor(rng.standard_normal(features))
    copy(bn, bn_there)
    for m in (here, there, bn, bn_there):
        m.eval()
    which = "fuse_linear_bn_eval" if name == "Linear" else "fuse_conv_bn_eval"
    if name == "Linear" and not affine:
        return  # PyTorch's does not take it
    fused, fused_there = getattr(ours, which)(here, bn), getattr(theirs, which)(there, bn_there)
    same(fused, fused_there)
    x = rng.standard_normal(shape).astype(np.float32)
    close(fused(ox.tensor(x)), bn_there(there(torch.tensor(x))))
    with pytest.raises(ValueError):
        getattr(ours, which)(here.train(), bn)


# pruning -----------------------------------------------------------------------------------------------------------


def test_pruning_by_size() -> None:
    for how in (
        lambda p, m: p.l1_unstructured(m, "weight", 0.3),
        lambda p, m: p.l1_unstructured(m, "weight", 4),
        lambda p, m: p.ln_structured(m, "weight", 0.5, 2, 0),
        lambda p, m: p.ln_structured(m, "weight", 1, 1, -1),
        lambda p, m: p.identity(m, "weight"),
    ):
        here, there = pair("Linear", 5, 4)
        how(ours.prune, here)
        how(theirs.prune, there)
        run_both(here, there, (2, 5))
        assert ours.prune.is_pruned(here) and theirs.prune.is_pruned(there)
        # again, on what is left
        ours.prune.l1_unstructured(here, "weight", 0.5)
        theirs.prune.l1_unstructured(there, "weight", 0.5)
        ours.prune.ln_structured(here, "weight", 1, float("inf"), 1)
        theirs.prune.ln_structured(there, "weight", 1, float("inf"), 1)
        run_both(here, there, (2, 5), 1)
        ours.prune.remove(here, "weight")
        theirs.prune.remove(there, "weight")
        same(here, there)
        assert not ours.prune.is_pruned(here)


def test_pruning_hooks_name_their_parameter() -> None:
    """The loop of PyTorch's tutorial on pruning."""
    found = []
    for library in (ox, torch):
        layer = library.nn.Linear(4, 4)
        library.nn.utils.prune.l1_unstructured(layer, "weight", 0.5)
        library.nn.utils.prune.ln_structured(layer, "weight", 1, 2, 0)
        hooks = [hook for hook in layer._forward_pre_hooks.values() if hook._tensor_name == "weight"]
        found.append([(type(h).__name__, [type(m).__name__ for m in h._pruning_methods]) for h in hooks])
    assert found[0] == found[1] == [("PruningContainer", ["L1Unstructured", "LnStructured"])]


def test_pruning_across_layers() -> None:
    made = [pair("Linear", 5, 4), pair("Linear", 4, 3)]
    ours.prune.l1_unstructured(made[0][0], "weight", 2)
    theirs.prune.l1_unstructured(made[0][1], "weight", 2)
    for room, side in ((ours, 0), (theirs, 1)):
        which = [(p[side], "weight") for p in made]
        room.prune.global_unstructured(which, room.prune.L1Unstructured, amount=0.4)
    for here, there in made:
        same(here, there)


def test_pruning_refusals() -> None:
    for room, layer in ((ours, nn.Linear(3, 2)), (theirs, torch.nn.Linear(3, 2))):
        for amount in (1.5, -1, -0.5):
            with pytest.raises(ValueError):
                room.prune.l1_unstructured(layer, "weight", amount)
        with pytest.raises(ValueError):
            room.prune.l1_unstructured(layer, "weight", 7)
        with pytest.raises(ValueError):
            room.prune.remove(layer, "weight")


# functional calls --------------------------------------------------------------------------------------------------


def test_functional_call() -> None:
    here, there = pair("Linear", 3, 2)
    x, w = np.ones((2, 3), np.float32), np.full((2, 3), 0.5, np.float32)
    a, b = ox.tensor(w).requires_grad_(), torch.tensor(w).requires_grad_()
    y = ours.stateless.functional_call(here, {"weight": a}, ox.tensor(x))
    z = torch.func.functional_call(there, {"weight": b}, torch.tensor(x))
    close(y, z)
    y.sum().backward()
    z.sum().backward()
    close(a.grad, b.grad)
    assert here.weight.grad is None and here.weight is not a
    with pytest.raises(ValueError):
        ours.stateless.functional_call(here, {"wait": a}, ox.tensor(x))
    with pytest.raises(ValueError):
        ours.stateless.functional_call(here, {"weight": a}, ox.tensor(x), strict=True)


@pytest.mark.parametrize(
    "name",
    [
        *(n for n in ours.__all__ if callable(getattr(ours, n))),
        *(f"prune.{n}" for n in ("l1_unstructured", "ln_structured", "random_structured", "global_unstructured")),
        *(f"parametrize.{n}" for n in ("register_parametrization", "is_parametrized", "remove_parametrizations")),
        *(f"parametrizations.{n}" for n in ("orthogonal", "weight_norm", "spectral_norm")),
    ],
)
def test_arguments(name: str) -> None:
    def read(room: Any) -> list[tuple[str, Any]]:
        for part in name.split("."):
            room = getattr(room, part)
        return [(p.name, p.default) for p in inspect.signature(room).parameters.values()]

    assert [n for n, _ in read(ours)] == [n for n, _ in read(theirs)]
    assert read(ours) == read(theirs)
