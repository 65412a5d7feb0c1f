"""What every distribution has."""

from __future__ import annotations

from typing import Any

from ox import functions as F
from ox.autograd.modes import no_grad
from ox.creation import tensor
from ox.dtypes import get_default_dtype
from ox.errors import ArgumentError
from ox.ops.explain import place
from ox.tensor import Tensor


def together(*values: Any) -> tuple[Tensor, ...]:
    """Parameters as tensors of the shape in which they meet; numbers take the type and device of the first tensor."""
    like = next((v for v in values if hasattr(v, "node")), None)
    dtype, device = (get_default_dtype(), None) if like is None else (like.dtype, like.device)
    tensors = [v if hasattr(v, "node") else tensor(v, dtype=dtype, device=device) for v in values]
    return F.broadcast_tensors(*tensors)


def require(name: str, parameter: Tensor, valid: Tensor, what: str) -> None:
    """Raise ArgumentError where a parameter has values that it cannot have; a recording has no values to look at."""
    if valid._recorded is None and not bool(valid.array.all()):
        wrong = int((~valid.array).sum())
        raise ArgumentError(
            f"{name} cannot have these values", where=place(), expected=what,
            got=f"{wrong} of {valid.array.size} that are not, in {list(parameter.array.shape)}",
        )  # fmt: skip


class UnknownError(ArgumentError, NotImplementedError):
    """What a distribution does not know of itself; a NotImplementedError too, as in PyTorch."""

    def __init__(self, distribution: Distribution, what: str) -> None:
        super().__init__(
            f"{type(distribution).__name__} does not know its {what}",
            where=place(),
            hint=f"def {what}(...) in a subclass of it",
        )


class Distribution:
    """The base: a batch of distributions over events. `torch.distributions.Distribution`.

    Args:
        batch_shape: the shape of the parameters.
        event_shape: the shape of one event.
        validate_args: whether parameters are looked at; None: yes.
    """

    has_rsample = False

    def __init__(
        self, batch_shape: tuple[int, ...] = (), event_shape: tuple[int, ...] = (), validate_args: bool | None = None
    ) -> None:
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)
        self.validate = validate_args is not False

    def _extended(self, sample_shape: Any) -> tuple[int, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def sample(self, sample_shape: Any = ()) -> Any:
        """[sample_shape, batch_shape, event_shape], outside the graph."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The same as a function of the parameters, so that gradients reach them. Raises ArgumentError where a sample
        is no such function."""
        raise ArgumentError(
            f"a sample of {type(self).__name__} is no smooth function of its parameters", where=place(),
            hint="sample(), and log_prob of it",
        )  # fmt: skip

    def log_prob(self, value: Any) -> Any:
        """Logarithm of the density or probability at `value`, in the shape in which it meets the batch."""
        raise UnknownError(self, "log_prob")

    def entropy(self) -> Any:
        """The entropy of each distribution, in nats."""
        raise UnknownError(self, "entropy")

    @property
    def mean(self) -> Any:
        raise UnknownError(self, "mean")

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
