"""Mixed precision: autocast, GradScaler, and the policy table. `torch.amp`; see docs/amp.md."""

from ox.amp.autocasting import (
    autocast,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from ox.amp.custom_function import custom_bwd, custom_fwd
from ox.amp.grad_scaler import GradScaler
from ox.amp.policy import FUNCTIONS, OPERATORS

__all__ = [
    "FUNCTIONS",
    "OPERATORS",
    "GradScaler",
    "autocast",
    "clear_autocast_cache",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_cache_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
]
