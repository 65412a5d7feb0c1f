"""One training step on tensors: what is recorded, and what its file is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ox.core.generator import default_generator
from ox.core.tensor import is_tensor
from ox.dtypes import int64, is_floating
from ox.errors import ArgumentError, ExportError
from ox.export.training_step.layout import LOSS, RANDOM_COUNTER, RANDOM_KEY, following
from ox.export.training_step.state import TrainingState
from ox.nn.utils import clip_grad_norm_
from ox.tensors.tensor import Tensor

Forward = Callable[..., tuple[Any, Any]]  # the tensors of a batch -> the loss, and the outputs of the model
Metrics = Mapping[str, Callable[[Any, Any], Any]]


@dataclass(frozen=True)
class Step:
    """Forward, loss, backward, clipping and update.

    Attributes:
        target: the tensor of a batch that `metrics` compare outputs with.
        metrics: by name; None: the accuracy, if the step is one of a classification.
        clip: the largest norm of all gradients together.
    """

    forward: Forward
    state: TrainingState
    batch: tuple[str, ...]
    target: int
    metrics: Metrics | None
    clip: float | None

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs, in their order."""
        return [*self.batch, *self.state.rates, *self.state.tensors, RANDOM_KEY, RANDOM_COUNTER]

    def __call__(self, *tensors: Tensor) -> dict[str, Tensor]:
        """Loss, metrics and the state after the step, from a batch, learning rates and the state before it."""
        given = dict(zip(self.inputs, tensors, strict=True))
        self.state.put(given)
        results = self.run([given[name] for name in self.batch])
        after = {**self.state.tensors, RANDOM_KEY: default_generator.key, RANDOM_COUNTER: default_generator.counter}
        return {**results, **{following(name): tensor for name, tensor in after.items()}}

    def run(self, batch: Sequence[Tensor]) -> dict[str, Tensor]:
        """One step on a batch from the present state. Returns loss and metrics."""
        optimizer = self.state.optimizer
        parameters = list(self.state.parameters.values())
        optimizer.zero_grad()  # also those of frozen parameters, which are left of earlier steps
        loss, outputs = self.forward(*batch)
        _check_loss(loss)
        loss.backward()
        if all(p.grad is None for p in parameters):
            raise ExportError(
                "no parameter receives a gradient of the loss",
                got=", ".join(list(self.state.parameters)[:4]),
                hint="a loss of the model's outputs, without detach() or item() between them",
            )
        if self.clip is not None:
            clip_grad_norm_(parameters, self.clip)
        before = {p: set(state) for p, state in optimizer.state.items()}
        optimizer.step()
        self._check_state(before)
        return {LOSS: loss.detach().reshape(()), **self.measured(outputs, batch[self.target])}

    def measured(self, outputs: Any, target: Tensor) -> dict[str, Tensor]:
        """The metrics of a batch."""
        metrics = self.metrics
        if metrics is None:
            metrics = {"accuracy": accuracy} if is_classification(outputs, target) else {}
        return {name: _number(name, metric(outputs, target)) for name, metric in metrics.items()}

    def _check_state(self, before: Mapping[Tensor, set[str]]) -> None:
        optimizer = self.state.optimizer
        for p, state in optimizer.state.items():
            more = set(state) - before.get(p, set())
            if more:
                raise ExportError(
                    f"{type(optimizer).__name__} makes its state in its first step", got=", ".join(sorted(more)),
                    expected="_initial(p, group), which returns it", hint="one step before save_step",
                )  # fmt: skip


def _check_loss(loss: Any) -> None:
    if not is_tensor(loss) or loss.array.size != 1 or not is_floating(loss.array.dtype):
        got = f"{loss.array.dtype} {list(loss.static_shape)}" if is_tensor(loss) else type(loss).__name__
        raise ArgumentError(
            "the loss is no single number", expected="a floating tensor of one element", got=got,
            hint="its mean(), or reduction='mean'",
        )  # fmt: skip


def _number(name: str, value: Any) -> Tensor:
    if not is_tensor(value):
        raise ArgumentError(
            f"the metric '{name}' is no tensor", expected="a tensor that ox operators made of outputs and target",
            got=type(value).__name__,
        )  # fmt: skip
    detached: Tensor = value.detach()
    return detached


def is_classification(outputs: Any, target: Any) -> bool:
    """Whether outputs [batch, classes] are scores for targets [batch], the indices of classes."""
    if not is_tensor(outputs) or not is_tensor(target):
        return False
    shape = outputs.static_shape
    scores = is_floating(outputs.array.dtype) and len(shape) == 2 and shape[1] > 1
    return scores and len(target.static_shape) == 1 and target.array.dtype.kind in "iu"


def accuracy(outputs: Tensor, target: Tensor) -> Tensor:
    """The part of the rows whose largest score is that of the target."""
    right: Tensor = (outputs.detach().argmax(1) == target.to(int64)).float().mean()
    return right
