"""The three files of a training step: written and proven under temporary names, and only then moved into place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import inliner

from ox.errors import ExportError
from ox.export import files
from ox.export.proof import Case, prove
from ox.export.training_step.layout import KEY, Layout
from ox.export.training_step.proof import Chain, prove_step
from ox.export.training_step.report import StepReport
from ox.graph.ir import Array, Graph
from ox.graph.writer import opset as opsets
from ox.graph.writer.write import to_model
from ox.serialization.files import write_whole
from ox.serialization.safetensors import chunks


@dataclass(frozen=True)
class Places:
    """Where the files go: ``step.onnx``, ``step.eval.onnx`` and ``step.safetensors``."""

    step: Path
    evaluation: Path
    initial: Path

    @classmethod
    def beside(cls, path: Path) -> Places:
        """The names that belong to that of the step.

        Raises:
            ExportError: a name that cannot be written.
        """
        if path.suffix != ".onnx":
            raise ExportError(f"{path} does not end in .onnx", hint=f"{path.with_suffix('.onnx')}")
        made = cls(path, path.with_suffix(".eval.onnx"), path.with_suffix(".safetensors"))
        for file in (made.step, made.evaluation, made.initial):
            files.check_writable(file)
        return made


@dataclass(frozen=True)
class StepFiles:
    """Writes the files. `metadata` goes into both ONNX files."""

    places: Places
    metadata: Mapping[str, str]
    opset: int | None

    def write(
        self,
        step: tuple[Graph, Sequence[Chain]],
        evaluation: tuple[Graph, list[Case]],
        before: Mapping[str, Array],
        layout: Layout,
        name: str,
    ) -> StepReport:
        """Write and prove all files. If one is not right, none of them appears.

        Args:
            step, evaluation: their graphs, and the eager runs to compare with.
            before: the initial state.
            name: of the model's class.
        """
        graph, chains = step
        evaluated, cases = evaluation
        chosen = opsets.select_opset(graph, self.opset)
        chosen_too = opsets.select_opset(evaluated, self.opset)
        proven: list[Any] = []

        def state(temporary: Path) -> None:
            arrays = {n: np.ascontiguousarray(before[n]).reshape(before[n].shape) for n in layout.state}
            with open(temporary, "wb") as file:
                file.writelines(chunks(arrays, {KEY: layout.to_json()}))
            self._write(evaluated, self.places.evaluation, chosen_too, both)

        def both(written: files.Written) -> None:
            prove(written, evaluated, chosen_too, cases)
            proven.append(self._write(graph, self.places.step, chosen, steps))

        def steps(written: files.Written) -> None:
            proven.append(prove_step(written.path, graph, chosen, chains, before))

        write_whole(self.places.initial, state)
        (rows, undecided), data = proven
        path = self.places.step
        size = path.stat().st_size + (data.stat().st_size if data else 0)
        nodes = sum(n.op_type != "Constant" for n in onnx.load(path, load_external_data=False).graph.node)
        return StepReport(
            path, self.places.initial, self.places.evaluation, name, nodes, layout, tuple(rows), tuple(undecided),
            chosen, size, data,
        )  # fmt: skip

    def _write(self, graph: Graph, path: Path, opset: int, prove_it: Any) -> Path | None:
        def model() -> onnx.ModelProto:
            made = inliner.inline_local_functions(to_model(graph, opset=opset, metadata=self.metadata, weights=False))
            plain = [each for each in made.opset_import if not each.domain]  # no node is of the functions' domain now
            del made.opset_import[:]
            made.opset_import.extend(plain)
            return made

        return files.write(model, graph, path, prove_it, files.MAX_INLINE_BYTES)[1]
