"""Time and memory of operators, under the names of `torch.profiler`."""

from ox.profiler.collection import record_function
from ox.profiler.event import Average, Averages, Event
from ox.profiler.profile_session import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "Average",
    "Averages",
    "Event",
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
