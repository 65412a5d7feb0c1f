"""`torch.utils.benchmark`: measures statements and prints tables of the results."""

from ox.utils.benchmark.compare import Compare
from ox.utils.benchmark.measurement import Measurement, TaskSpec, select_unit, trim_sigfig
from ox.utils.benchmark.timing import Timer, timer

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "select_unit", "timer", "trim_sigfig"]
