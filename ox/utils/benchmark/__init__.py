"""`torch.utils.benchmark`: how long statements take, and tables of that."""

from ox.utils.benchmark.compare import Compare
from ox.utils.benchmark.measurement import Measurement, TaskSpec, select_unit, trim_sigfig
from ox.utils.benchmark.timer import Timer, timer

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "select_unit", "timer", "trim_sigfig"]
