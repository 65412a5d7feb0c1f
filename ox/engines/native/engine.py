"""The engine `native`."""

from __future__ import annotations

from ox.devices.cpu_kernels import kernel_table as compiled
from ox.engines.engine import Task
from ox.engines.native.aliases import Aliases
from ox.engines.native.cuda.engine import NativeOnGpu
from ox.engines.native.executable import NativeExecutable
from ox.engines.native.fold import Folded, fold
from ox.engines.native.kernel_source import source_of
from ox.engines.native.launches import Launch, Work, launches
from ox.engines.native.memory import SharedBlock
from ox.engines.native.regions import Single, fuse
from ox.engines.native.schedule import LoadedKernel, schedule
from ox.kernels import Library, generated, reason
from ox.kernels.compiler import CompilerError


class Native:
    """Runs graphs on ox's own kernels, on the CPU. Where no kernels can be compiled, every node runs by itself.

    Attributes:
        on_gpu: the engine for calls whose tensors lie on a GPU.
    """

    name = "native"

    def __init__(self) -> None:
        self._memory = SharedBlock()
        self.on_gpu = NativeOnGpu(self)

    def build(self, task: Task) -> NativeExecutable:
        """Prepare a task. The sizes of its inputs are those of the recorded call (`Value.shape`).

        Raises:
            LoadError: the graph has an operator that ox does not have.
        """
        folded = fold(task.graph)
        library = compiled.library()
        work, aliases, kernels, unfused = _fused(task, folded, library)
        plan = schedule(task, folded, aliases, work, kernels, library, self._memory)
        return NativeExecutable(task, plan, work, unfused, self._memory.lock)


def _fused(
    task: Task, folded: Folded, library: Library | None
) -> tuple[list[Work], Aliases, dict[str, LoadedKernel], str | None]:
    """The work with its generated kernels by text; or node by node, and why."""
    single = [Single(node) for node in folded.nodes]
    if library is None:
        return [*single], Aliases(task, folded.nodes), {}, reason()
    parts = fuse(task.graph, folded)
    aliases = Aliases(task, [part.node for part in parts if isinstance(part, Single)])
    work = launches(parts, folded, task.updates, aliases)
    kernels = {part.text: part.kernels[0] for part in work if isinstance(part, Launch)}
    names = {text: f"region_{i}" for i, text in enumerate(kernels)}
    finishing = [f"{name}_finish" for text, name in names.items() if kernels[text].finish]
    try:
        loaded = generated.load(library, source_of(names), [*names.values(), *finishing]) if names else {}
    except (CompilerError, OSError) as error:
        return [*single], Aliases(task, folded.nodes), {}, str(error)
    return work, aliases, {text: (loaded[name], loaded.get(f"{name}_finish")) for text, name in names.items()}, None
