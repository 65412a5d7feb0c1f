"""What an executable says about itself."""

from __future__ import annotations

from collections import Counter

from ox.engines.native.launches import Launch, Work
from ox.engines.native.regions import Region
from ox.engines.native.schedule import Schedule
from ox.engines.native.steps import RecordedStep
from ox.graph.ir import Node


def explain(work: list[Work], schedule: Schedule, unfused: str | None) -> list[str]:
    """Lines for people: regions with their operators and lines, single nodes, memory."""
    found = [part for part in work if isinstance(part, Launch)]
    single = [part for part in work if not isinstance(part, Launch)]
    regions = sum(len(launch.regions) for launch in found)
    fused = sum(len(region.nodes) for launch in found for region in launch.regions)
    lines = [f"{fused} of {fused + len(single)} nodes in {regions} fused regions; {len(found)} launches"]
    if unfused is not None:
        lines.append(f"nothing is fused: {unfused}")
    lines += [line for launch in found for line in _launch(launch)]
    counts = Counter(part.node.key for part in single)
    if counts:
        lines.append("by themselves: " + ", ".join(f"{key} {count}" for key, count in sorted(counts.items())))
    recorded = sum(isinstance(step, RecordedStep) for step in schedule.steps)
    lines.append(f"{recorded} calls of compiled kernels are recorded; {len(schedule.steps)} steps in all")
    saved = schedule.unplanned > schedule.planned  # small values are rounded up to whole lines of the cache
    without = f", {schedule.unplanned:,} if each value had its own" if saved else ""
    lines.append(f"memory inside a call: {schedule.planned:,} bytes planned{without}")
    return lines


def groups(work: list[Work]) -> list[tuple[str, list[Node]]]:
    """Regions with what they are a kernel of, and single nodes."""
    found: list[tuple[str, list[Node]]] = []
    number = 0
    for part in work:
        if isinstance(part, Launch):
            number += 1
            several = f", region {{}} of {len(part.regions)}" if len(part.regions) > 1 else ""
            for i, region in enumerate(part.regions, 1):
                found.append((f"launch {number}{several.format(i)}: {list(region.shape)}", region.nodes))
        else:
            found.append(("", [part.node]))
    return found


def _launch(launch: Launch) -> list[str]:
    first = launch.regions[0]
    shapes = Counter(str(list(region.shape)) for region in launch.regions)
    several = f"{len(launch.regions)} × " if len(launch.regions) > 1 else ""
    sizes = ", ".join(list(shapes)[:3]) + (", ..." if len(shapes) > 3 else "")
    return [f"{several}{_operators(first)} {sizes}", *(f"    {place}" for place in _places(launch.regions)[:3])]


def _operators(region: Region) -> str:
    counts = Counter(node.key for node in region.nodes)
    return " ".join(key if count == 1 else f"{key}×{count}" for key, count in counts.items())


def _places(regions: list[Region]) -> list[str]:
    return list(dict.fromkeys(node.place for region in regions for node in region.nodes if node.place))
