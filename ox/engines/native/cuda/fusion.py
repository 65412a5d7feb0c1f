"""Which generated kernels a GPU runs for a task, and their source."""

from __future__ import annotations

from dataclasses import dataclass

from ox.engines.engine import Task
from ox.engines.native.aliases import Aliases
from ox.engines.native.cuda.halves import Halves
from ox.engines.native.fold import Folded
from ox.engines.native.kernel_source import GPU_HEAD, source_of
from ox.engines.native.launches import Launch, Work, launches
from ox.engines.native.regions import Single, fuse
from ox.graph.ir import Graph


@dataclass(frozen=True)
class Fused:
    """The device's work, and the names of its kernels by text; one with a sum has a second kernel, NAME_finish."""

    work: list[Work]
    names: dict[str, str]
    finishing: list[str]

    @property
    def source(self) -> str:
        """For `ox.devices.gpu.kernels.load`."""
        return source_of(self.names, GPU_HEAD)


def fused(task: Task, halves: Halves) -> Fused:
    """The work of the device's half of a task."""
    folded = Folded(halves.nodes, halves.constants, halves.sizes)
    updates = {new: state for new, state in task.updates.items() if state in halves.on_device}
    parts = fuse(Graph(task.graph.inputs, task.graph.outputs, folded.nodes), folded)
    aliases = Aliases(task, [part.node for part in parts if isinstance(part, Single)])
    work = launches(parts, folded, updates, aliases)
    kernels = {part.text: part.kernels[0] for part in work if isinstance(part, Launch)}
    names = {text: f"region_{i}" for i, text in enumerate(kernels)}
    return Fused(work, names, [f"{name}_finish" for text, name in names.items() if kernels[text].finish])
