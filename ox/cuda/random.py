"""`torch.cuda.random`: one generator serves every device, so these are the functions of `ox.random`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox import random
from ox.devices import cuda

seed = seed_all = random.seed
initial_seed = random.initial_seed


def manual_seed(seed: int) -> None:
    """Seed the default generator, which serves every device."""
    random.manual_seed(seed)


manual_seed_all = manual_seed


def get_rng_state(device: Any = "cuda") -> Any:
    """The default generator's state."""
    return random.get_rng_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the default generator's state."""
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """That state for each GPU; an empty list without one."""
    return [random.get_rng_state() for _ in range(cuda.device_count())]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Set what `get_rng_state_all` gave."""
    for state in new_states:
        random.set_rng_state(state)
