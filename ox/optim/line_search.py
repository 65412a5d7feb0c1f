"""A step length that meets the strong Wolfe conditions (Nocedal and Wright, "Numerical Optimization", 3.5 and 3.6)."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

ARMIJO, CURVATURE, TOLERANCE = 1e-4, 0.9, 1e-9


class Point(NamedTuple):
    """A step length, the loss there, its gradient, and the gradient along the direction."""

    t: float
    loss: float
    gradient: Any
    slope: float


def strong_wolfe(at: Callable[[float], Point], start: Point, t: float, largest: float, most: int) -> tuple[Point, int]:
    """The best point and the number of evaluations of the loss.

    Args:
        at: evaluates a step length; `start` is what it gives at 0, `t` the first to try.
        largest: the largest element of the direction: a bracket that moves nothing by more than 1e-9 is small enough.
        most: how many steps the search may take.
    """
    before, new = start, at(t)
    low, high = start, new
    steps, found = 0, False
    while steps < most:
        if not falls(new, start) or (steps > 1 and new.loss >= before.loss):
            low, high = before, new
            break
        if abs(new.slope) <= -CURVATURE * start.slope:
            low, found = new, True
            break
        if new.slope >= 0:
            low, high = before, new
            break
        t = cubic(before, new, new.t + 0.01 * (new.t - before.t), new.t * 10)
        before, new = new, at(t)
        steps += 1
    else:
        low, high = start, new
    evaluations = steps + 1
    if not found and high.loss < low.loss:
        low, high = high, low
    close_before = False
    while not found and steps < most:
        left, right = min(low.t, high.t), max(low.t, high.t)
        if (right - left) * largest < TOLERANCE:
            break
        first, second = (low, high) if low.t <= high.t else (high, low)
        t = cubic(first, second, left, right)
        margin = 0.1 * (right - left)
        close = min(right - t, t - left) < margin
        if close and (close_before or t >= right or t <= left):
            t = right - margin if abs(t - right) < abs(t - left) else left + margin
            close = False
        close_before = close
        new = at(t)
        evaluations += 1
        steps += 1
        if not falls(new, start) or new.loss >= low.loss:
            high = new
            if high.loss < low.loss:
                low, high = high, low
            continue
        found = abs(new.slope) <= -CURVATURE * start.slope
        if not found and new.slope * (high.t - low.t) >= 0:
            high = low
        low = new
    return low, evaluations


def falls(new: Point, start: Point) -> bool:
    """Whether the loss fell by a part of what the slope promised."""
    return not new.loss > start.loss + ARMIJO * new.t * start.slope


def cubic(a: Point, b: Point, least: float, most: float) -> float:
    """Where the cubic through two points with their slopes is lowest, between bounds; the middle if it has no
    minimum."""
    if a.t > b.t:
        a, b = b, a
    d = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d * d - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2
    root = sqrt(square)
    below = b.slope - a.slope + 2 * root
    if below == 0:
        return most
    return min(max(b.t - (b.t - a.t) * ((b.slope + root - d) / below), least), most)
