"""What every distribution has."""

from __future__ import annotations

import copy
import functools
from typing import Any, ClassVar

from ox import functions as F
from ox.autograd.grad_mode import no_grad
from ox.core import random_stream
from ox.core.size import Size
from ox.core.tensor import is_tensor
from ox.distributions import constraints
from ox.dtypes import get_default_dtype
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions.creation import tensor
from ox.tensors.tensor import Tensor

__all__ = ["Distribution"]


def together(*values: Any) -> tuple[Tensor, ...]:
    """Parameters as tensors of the shape in which they meet; numbers take the type and device of the first tensor."""
    like = next((v for v in values if is_tensor(v)), None)
    dtype, device = (get_default_dtype(), None) if like is None else (like.dtype, like.device)
    tensors = [v if is_tensor(v) else tensor(v, dtype=dtype, device=device) for v in values]
    return F.broadcast_tensors(*tensors)


def require(name: str, parameter: Tensor, valid: Tensor, what: str) -> None:
    """Raise ArgumentError where a parameter has values that it cannot have; a recording has no values to look at."""
    if valid._recorded is None and not valid.all():
        wrong = int((~valid).sum())
        raise ArgumentError(
            f"invalid values of {name}", expected=what,
            got=f"{wrong} of {valid.array.size} that are not, in {list(parameter.static_shape)}",
        )  # fmt: skip


def _with_own_numbers(draw: Any) -> Any:
    """A method that draws, with random numbers of the class's own: else a sample would follow those of another
    distribution from the same seed."""

    @functools.wraps(draw)
    def drawn(self: Distribution, *given: Any, **named: Any) -> Any:
        kind = next((each.__name__ for each in type(self).__mro__ if each.__name__ in random_stream.KINDS), None)
        if kind is None:
            return draw(self, *given, **named)
        with random_stream.drawing(kind):
            return draw(self, *given, **named)

    return drawn


class UnknownError(ArgumentError, NotImplementedError):
    """What a distribution does not know of itself; a NotImplementedError too, as in PyTorch."""

    def __init__(self, distribution: Distribution, what: str) -> None:
        super().__init__(
            f"{type(distribution).__name__} does not know its {what}", hint=f"def {what}(...) in a subclass of it"
        )


class Distribution:
    """The base: a batch of distributions over events. `torch.distributions.Distribution`.

    Args:
        batch_shape: the shape of the parameters.
        event_shape: the shape of one event.
        validate_args: whether parameters are looked at; None: yes, but for `set_default_validate_args`.
    """

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name in {"sample", "rsample"} & vars(cls).keys():
            setattr(cls, name, _with_own_numbers(getattr(cls, name)))

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Any]] = {}
    support: Any = constraints.dependent
    _validates = True

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters are looked at where `validate_args` is None."""
        Distribution._validates = bool(value)

    def __init__(
        self, batch_shape: tuple[int, ...] = (), event_shape: tuple[int, ...] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        self._validate_args = Distribution._validates if validate_args is None else bool(validate_args)

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one event."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        """[sample_shape, batch_shape, event_shape], for a `sample` or `rsample` of a subclass."""
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """Raise an error for a value whose shape no `log_prob` can take, for one of a subclass: DTypeError for no
        tensor, ShapeError for sizes that do not meet those of the batch and the event."""
        if not isinstance(value, Tensor):
            raise DTypeError("a sample is a tensor", got=type(value).__name__)
        shape, own = value.static_shape, self._batch_shape + self._event_shape
        fits = len(shape) >= len(self._event_shape) and all(
            1 in (a, b) or a == b for a, b in zip(reversed(shape), reversed(own), strict=False)
        )
        if not fits:
            raise ShapeError(
                f"{type(self).__name__} does not take these samples",
                expected=f"a shape that meets {list(own)}",
                got=str(list(shape)),
            )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution for a larger batch, to which the parameters broadcast."""
        made, old, batch = copy.copy(self), len(self._batch_shape), Size(batch_shape)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(made, name, F.broadcast_to(value, (*batch, *value.shape[old:])))
            elif isinstance(value, Distribution):
                setattr(made, name, value.expand((*batch, *value.batch_shape[old:])))
        made._batch_shape = batch
        return made

    def sample(self, sample_shape: Any = ()) -> Any:
        """[sample_shape, batch_shape, event_shape], outside the graph."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The same as a function of the parameters, so that gradients reach them. Raises ArgumentError where a sample
        is no such function."""
        raise ArgumentError(
            f"{type(self).__name__} has no rsample: its samples are not differentiable in its parameters",
            hint="sample(), and log_prob of it",
        )  # fmt: skip

    def log_prob(self, value: Any) -> Any:
        """Logarithm of the density or probability at `value`, in the shape in which it meets the batch."""
        raise UnknownError(self, "log_prob")

    def entropy(self) -> Any:
        """The entropy of each distribution, in nats."""
        raise UnknownError(self, "entropy")

    def cdf(self, value: Any) -> Any:
        """The probability of what is not above `value`."""
        raise UnknownError(self, "cdf")

    def icdf(self, value: Any) -> Any:
        """The quantile: the inverse of `cdf`."""
        raise UnknownError(self, "icdf")

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values that there are, along a first dimension."""
        raise UnknownError(self, "enumerate_support")

    @property
    def mean(self) -> Any:
        raise UnknownError(self, "mean")

    @property
    def mode(self) -> Any:
        raise UnknownError(self, "mode")

    @property
    def variance(self) -> Any:
        raise UnknownError(self, "variance")

    @property
    def stddev(self) -> Any:
        return self.variance.sqrt()

    def perplexity(self) -> Any:
        return self.entropy().exp()

    def __repr__(self) -> str:
        shown = {n: v for n, v in vars(self).items() if isinstance(v, Tensor) and not n.startswith("_")}
        sizes = (f"{n}: {v.item() if v.numel() == 1 else list(v.shape)}" for n, v in shown.items())
        return f"{type(self).__name__}({', '.join(sizes)})"
