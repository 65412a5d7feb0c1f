"""Pruning: a mask of zeros and ones over a parameter, `<name>_mask`, applied before each forward to `<name>_orig`;
`torch.nn.utils.prune`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from ox import random
from ox.core.mode import switch_mode
from ox.core.operator import make_tensor
from ox.devices import cpu, cuda_state
from ox.errors import ArgumentError, ShapeError
from ox.nn.base.module import Module
from ox.nn.utils.weight_norm import remove_hook
from ox.tensors.tensor import Tensor

M = TypeVar("M", bound=Module)


class BasePruningMethod:
    """A way to choose what goes: a subclass sets `PRUNING_TYPE` and gives `compute_mask`.

    PRUNING_TYPE: "unstructured" sees the elements that are still there as one vector, "structured" the slices of
    `self.dim` that are, "global" all there is.
    """

    PRUNING_TYPE = "unstructured"
    _tensor_name = ""

    @property
    def name(self) -> str:
        """The parameter, as the hooks of other normalized weights call it."""
        return self._tensor_name

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """A mask of the shape of `t`, the importance of each element; it begins from `default_mask`."""
        raise ArgumentError(f"{type(self).__name__} has no compute_mask")

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter with its pruned elements at 0."""
        original = getattr(module, f"{self._tensor_name}_orig")
        return original * getattr(module, f"{self._tensor_name}_mask").to(original.array.dtype)

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Prune a parameter, or prune it further.

        Raises:
            ArgumentError: an amount out of range; ShapeError: scores of another shape; AttributeError: no parameter.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = _methods(module, name)
        value = getattr(module, name) if before else module.get_parameter(name)
        scores = value if importance_scores is None else importance_scores
        if scores.static_shape != value.static_shape:
            raise ShapeError(
                "importance_scores have another shape than the parameter",
                expected=str(list(value.static_shape)),
                got=str(list(scores.static_shape)),
            )
        with switch_mode(grad=False):
            held = getattr(module, f"{name}_mask") if before else make_tensor(np.ones_like(value.array))
            container = PruningContainer(*before, method)
            mask = container.compute_mask(scores.detach().cpu(), held.cpu()).to(value.device)  # NumPy sorts
        if before:
            remove_hook(module, BasePruningMethod, name, "pruning")
        else:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", value)
        module.register_buffer(f"{name}_mask", mask)
        hook = container if before else method
        hook(module, ())
        module.register_forward_pre_hook(hook)
        return hook

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A tensor by itself with what this method chooses at 0."""
        mask = make_tensor(np.ones_like(t.array)) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, mask)

    def remove(self, module: Module) -> None:
        """Make the pruned parameter an ordinary one."""
        original: Any = getattr(module, f"{self._tensor_name}_orig")
        with switch_mode(grad=False):
            original.assign(self.apply_mask(module), "prune.remove")
        for held in (self._tensor_name, f"{self._tensor_name}_orig", f"{self._tensor_name}_mask"):
            delattr(module, held)
        module.register_parameter(self._tensor_name, original)


class PruningContainer(BasePruningMethod):
    """Several methods on one parameter, each on what the ones before left."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: list[BasePruningMethod] = []
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method).__name__} is not a BasePruningMethod")
        if self._pruning_methods and method._tensor_name != self._tensor_name:
            raise ArgumentError(
                "a PruningContainer is for one parameter", expected=self._tensor_name, got=method._tensor_name
            )
        self._tensor_name = method._tensor_name
        self._pruning_methods.append(method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The last method's mask, on what is left of the tensor."""
        method = self._pruning_methods[-1]
        mask = default_mask.array.astype(t.array.dtype)
        part: Any = ...
        if method.PRUNING_TYPE == "unstructured":
            part = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % mask.ndim  # type: ignore[attr-defined]
            left = mask.any(tuple(i for i in range(mask.ndim) if i != dim))
            part = (*[slice(None)] * dim, left)
        mask[part] = method.compute_mask(make_tensor(t.array[part]), make_tensor(mask[part].copy())).array
        return make_tensor(mask)


class Identity(BasePruningMethod):
    """Nothing goes; the parameter has a mask, though."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Amount(BasePruningMethod):
    def __init__(self, amount: float) -> None:
        whole = isinstance(amount, int | np.integer) and not isinstance(amount, bool)
        if not (amount >= 0 if whole else isinstance(amount, float) and 0 <= amount <= 1):
            raise ArgumentError("amount is a count, or a part in [0, 1]", got=repr(amount), hint="1.0 is all, 1 is one")
        self.amount = amount

    def _count(self, of: int) -> int:
        if isinstance(self.amount, float):
            return round(self.amount * of)
        if self.amount > of:
            raise ArgumentError(
                "amount is larger than the number of elements", expected=f"at most {of}", got=str(self.amount)
            )
        return int(self.amount)

    def _without(self, mask: Any, importance: Any) -> Tensor:
        """The mask without the least important elements, or slices."""
        mask = mask.copy()
        mask[importance.argsort(axis=None, kind="stable")[: self._count(importance.size)]] = 0
        return make_tensor(mask)


class RandomUnstructured(_Amount):
    """Any elements."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if random.is_torch_compatible():
            if not self._count(t.array.size):
                return make_tensor(cuda_state.copy(default_mask.array))
            drawn = -random.rand_like(t).cpu().array.reshape(-1)  # PyTorch takes away the largest
        else:
            drawn = random.uniform((t.array.size,), kind="pruning").cpu().array
        return make_tensor(self._without(default_mask.array.reshape(-1), drawn).array.reshape(t.static_shape))


class L1Unstructured(_Amount):
    """The elements nearest to 0."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        sizes = np.abs(t.array).reshape(-1)
        return make_tensor(self._without(default_mask.array.reshape(-1), sizes).array.reshape(t.static_shape))


class _Structured(_Amount, ABC):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    @abstractmethod
    def _importance(self, slices: Any) -> Any:
        """A number for each of `slices`, the least of which goes first."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        rank = t.array.ndim
        if rank < 2 or not -rank <= self.dim < rank:
            raise ArgumentError(
                "structured pruning takes slices of a tensor of two dimensions or more",
                got=f"dim {self.dim} of {list(t.static_shape)}",
            )
        slices = np.moveaxis(t.array, self.dim, 0)
        mask = np.moveaxis(default_mask.array, self.dim, 0)
        left = self._without(mask, self._importance(slices.reshape(len(slices), -1)))
        return make_tensor(np.ascontiguousarray(np.moveaxis(left.array, 0, self.dim)))


class RandomStructured(_Structured):
    """Any slices of one dimension."""

    def _importance(self, slices: Any) -> Any:
        return random.uniform((len(slices),), kind="pruning").cpu().array


class LnStructured(_Structured):
    """The slices of one dimension with the smallest n-norm."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _importance(self, slices: Any) -> Any:
        return np.linalg.norm(slices, None if self.n == "fro" else self.n, axis=1)


class CustomFromMask(BasePruningMethod):
    """What a given mask has at 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if self.mask.static_shape != default_mask.static_shape:
            raise ShapeError(
                "the mask has another shape than the parameter",
                expected=str(list(default_mask.static_shape)),
                got=str(list(self.mask.static_shape)),
            )
        return default_mask * self.mask.to(default_mask.device, default_mask.array.dtype)


def _methods(module: Module, name: str) -> list[BasePruningMethod]:
    """The methods that prune a parameter now, in order."""
    hooks = [h for h in module._hooks_of("pre") if isinstance(h, BasePruningMethod) and h._tensor_name == name]
    return [m for hook in hooks for m in (hook if isinstance(hook, PruningContainer) else [hook])]


def identity(module: M, name: str) -> M:
    """Give a parameter a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: float) -> M:
    """Prune elements at random: a count, or a part of those that are left."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: M, name: str, amount: float, importance_scores: Tensor | None = None) -> M:
    """Prune the elements nearest to 0, or of the smallest score."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: float, dim: int) -> M:
    """Prune slices of a dimension at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: M, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None) -> M:
    """Prune the slices of a dimension whose n-norm is smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prune what `mask` has at 0."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as if they were one: (module, name) pairs, and a method of unstructured pruning."""
    pairs, scores = list(parameters), importance_scores or {}
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f"{pruning_method.__name__} is {method.PRUNING_TYPE}; global pruning is unstructured")
    values = [getattr(module, name) for module, name in pairs]
    flat_scores = [cpu(scores.get(pair, value).array).reshape(-1) for pair, value in zip(pairs, values, strict=True)]
    held = [m._buffers.get(f"{name}_mask") for m, name in pairs]
    masks = [
        np.ones(v.array.size, v.array.dtype) if m is None else cpu(m.array).reshape(-1)
        for m, v in zip(held, values, strict=True)
    ]
    whole = PruningContainer(method).compute_mask(
        make_tensor(np.concatenate(flat_scores)), make_tensor(np.concatenate(masks))
    )
    start = 0
    for (module, name), value in zip(pairs, values, strict=True):
        part = whole.array[start : start + value.array.size].reshape(value.static_shape)
        custom_from_mask(module, name, make_tensor(part))
        start += value.array.size


def remove(module: M, name: str) -> M:
    """Make a pruned parameter an ordinary one, with its zeros. Raises ArgumentError where it is not pruned."""
    remove_hook(module, BasePruningMethod, name, "pruning").remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of this module, or of one below, has a mask."""
    return any(isinstance(h, BasePruningMethod) for m in module.modules() for h in m._hooks_of("pre"))
