"""The running statistics of a batch normalization."""

from typing import Any

from ox.core.function import function
from ox.core.types import XP, Array, T
from ox.dtypes import FLOATS
from ox.ops.elementwise.arithmetic import Add, Mul, Sub


@function("mean var", kind="statistics", fused=True, T=FLOATS, amp="widest")
def RunningStatistics(running_mean: T, running_var: T, mean: T, var: T, part: T, correction: T) -> tuple[T, T]:
    """The running mean and variance [C] moved by `part` [] towards the mean and the variance [C] of a batch, the
    latter times `correction` [], which makes it an unbiased one. What `torch.nn.BatchNorm2d` does while training."""
    moved_mean = Add(running_mean, Mul(Sub(mean, running_mean), part))
    return moved_mean, Add(running_var, Mul(Sub(Mul(var, correction), running_var), part))


@RunningStatistics.fast
def _(
    xp: XP, running_mean: Array, running_var: Array, mean: Array, var: Array, part: Array, correction: Array
) -> tuple[Any, Any]:
    moved_mean, moved_var = mean - running_mean, var * correction
    moved_var -= running_var
    for moved, running in ((moved_mean, running_mean), (moved_var, running_var)):
        moved *= part
        moved += running
    return moved_mean, moved_var
