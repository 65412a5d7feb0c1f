"""What `save_step` says about the files that it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ox.export.training_step.layout import Layout
from ox.export.training_step.proof import StepRow


@dataclass(frozen=True)
class StepReport:
    """A training step that was written, and how it was proven."""

    path: Path
    initial: Path  # the safetensors file with the initial state
    evaluation: Path  # the ONNX file that gives loss, metrics and outputs in eval mode
    model: str  # the class that was recorded
    nodes: int
    layout: Layout
    rows: tuple[StepRow, ...]
    undecided: tuple[str, ...]  # arrays of the state that rounding decides, such as a bias before a normalization
    opset: int
    size: int  # bytes of the ONNX file, and of its data file if there is one
    data: Path | None = None

    def __str__(self) -> str:
        """The files and how they were proven."""
        layout = self.layout
        trained = sum(kind == "parameter" for kind in layout.kinds.values())
        lines = [
            f"{self.path}: a step of {self.model} with {layout.optimizer}, {self.nodes} nodes, opset {self.opset}, "
            f"{self.size:,} bytes",
            f"  {', '.join(layout.batch)} → {', '.join([layout.loss, *layout.metrics])}; {trained} parameters trained, "
            f"{len(layout.frozen)} frozen; {len(layout.state)} arrays of state in {self.initial.name}",
        ]
        for row in self.rows:
            at = "the example" if row.batch is None else f"batch {row.batch}"
            lines.append(
                f"  {row.runtime}, {at}, step {row.steps}: max |Δ| {row.max_abs:.1e} of {row.name}, "
                f"at most {row.allowed:.1e}"
            )
        if self.undecided:
            lines.append(f"  rounding decides {', '.join(self.undecided)}")
        return "\n".join(lines)
