"""What all metrics share: a state that batches are merged into, and that the states of other processes merge with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ox.core.tensor import is_tensor
from ox.devices import cpu
from ox.errors import ArgumentError

Array = np.ndarray[Any, Any]
State = dict[str, Array]


class Metric(ABC):
    """The base of all metrics; torchmetrics' names.

    A subclass defines the contribution of one batch (`count`) and the result of all contributions (`result`). What
    batches contribute is added up; a metric that needs something else overrides `merge`.
    """

    name: str  # in rows and logs
    higher_is_better: ClassVar[bool | None] = True  # None: no single number

    def __init__(self) -> None:
        self._state: State = {}

    @abstractmethod
    def count(self, outputs: Array, targets: Array) -> State:
        """What a batch contributes."""

    @abstractmethod
    def result(self, state: Mapping[str, Array]) -> Any:
        """The metric of what was contributed."""

    def update(self, outputs: Any, targets: Any) -> None:
        """Count one batch. Tensors or arrays; their shapes stand in each metric's own description."""
        self.merge(self.count(as_array(outputs), as_array(targets)))

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Count one batch, and return the metric of this batch alone (torchmetrics' ``forward``)."""
        batch = self.count(as_array(outputs), as_array(targets))
        self.merge(batch)
        return self.result(batch)

    def compute(self) -> Any:
        """The metric of everything since the last `reset`.

        Raises:
            ArgumentError: nothing was counted.
        """
        if not self._state:
            raise ArgumentError(f"{type(self).__name__} has counted nothing yet", hint="update(outputs, targets) first")
        return self.result(self._state)

    def reset(self) -> None:
        """Forget everything."""
        self._state = {}

    def merge(self, state: Mapping[str, Array]) -> None:
        """Count what another metric of the same kind has counted: its `state_dict()`. The order does not matter."""
        for name, value in state.items():
            known = self._state.get(name)
            if known is not None and np.shape(known) != np.shape(value):
                raise ArgumentError(
                    f"{type(self).__name__} cannot merge counts of another number of classes",
                    expected=str(np.shape(known)), got=str(np.shape(value)),
                )  # fmt: skip
            self._state[name] = value if known is None else known + value

    def state_dict(self) -> State:
        """What was counted: arrays by name, nothing before the first batch."""
        return dict(self._state)

    def load_state_dict(self, state_dict: Mapping[str, Array]) -> None:
        """Go on from what `state_dict` gave."""
        self.reset()
        self.merge(state_dict)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


def as_array(x: Any) -> Array:
    """A tensor, array, list or number as a NumPy array."""
    return cpu(x.array) if is_tensor(x) else np.asarray(x)
