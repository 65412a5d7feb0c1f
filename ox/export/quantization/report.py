"""What quantization did: accuracy, size and latency beside float32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ox.graph.contract import Contract


@dataclass(frozen=True)
class QuantizeReport:
    """Pairs are (float32, quantized). A ratio is quantized / float32; below 1 is smaller, or faster."""

    source: Path
    path: Path
    scheme: str
    quantized: tuple[str, ...]  # names of the nodes that were quantized
    in_float: tuple[str, ...]  # names of nodes with weights that were left in float, the most sensitive first
    left: tuple[str, ...]  # why weights could not be quantized
    calibrated: int  # runs
    size: tuple[int, int]  # bytes
    seconds: tuple[float, float] | None  # of one run; None without an input to time
    rows: int  # of the input that was timed
    accuracy: tuple[float, float] | None
    contract: Contract
    error: float | None = None  # of the outputs, as a share of their norm; None without inputs to compare

    @property
    def size_ratio(self) -> float:
        return self.size[1] / self.size[0]

    @property
    def latency_ratio(self) -> float | None:
        return None if self.seconds is None else self.seconds[1] / self.seconds[0]

    def __str__(self) -> str:
        """One line for each measurement."""
        layers = len(self.quantized) + len(self.in_float)
        lines = [f"{self.path}: {self.scheme}, {len(self.quantized)} of {layers} layers"]
        if self.in_float:
            lines.append(f"  in float   {', '.join(self.in_float)}")
        lines += [f"  left       {reason}" for reason in self.left]
        if self.accuracy is not None:
            lines.append("  accuracy   {:.4g} → {:.4g}".format(*self.accuracy))
        if self.error is not None:
            lines.append(f"  error      {self.error:.2g} of the outputs")
        lines.append("  size       {:,} → {:,} bytes".format(*self.size) + f" ({self.size_ratio:.2f}×)")
        if self.seconds is not None:
            before, after = (1e6 * s for s in self.seconds)
            lines.append(f"  latency    {before:,.0f} → {after:,.0f} µs ({after / before:.2f}×), batch {self.rows}")
        if self.contract.samples:
            tolerance = self.contract.tolerance or 0.0
            lines.append(f"  golden     {len(self.contract.samples)} samples drawn again, tolerance {tolerance:.1e}")
        return "\n".join(lines)
