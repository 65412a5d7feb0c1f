"""What is measured of generated text: how long its tokens take."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ox.bench.histogram import Histogram
from ox.bench.recorder import Recorder

SHOWN = (50.0, 90.0, 99.0)  # percentiles


@dataclass
class TextFigures:
    """Of the texts of one load that were completed.

    Attributes:
        first: seconds from the request to the first token.
        between: seconds from one token to the next.
        tokens: that came while it was measured.
        requests, prompt_tokens, completion_tokens: of all texts together, as the server counts them.
    """

    first: Histogram = field(default_factory=Histogram)
    between: Histogram = field(default_factory=Histogram)
    tokens: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def merge(self, share: dict[str, Any]) -> None:
        """Adds what one process measured."""
        self.first.merge(Histogram.from_json(share["first"]))
        self.between.merge(Histogram.from_json(share["between"]))
        for name in ("tokens", "requests", "prompt_tokens", "completion_tokens"):
            setattr(self, name, getattr(self, name) + share[name])

    def share(self) -> dict[str, Any]:
        """For `merge`."""
        counts = ("tokens", "requests", "prompt_tokens", "completion_tokens")
        histograms = {"first": self.first.to_json(), "between": self.between.to_json()}
        return {**histograms, **{name: getattr(self, name) for name in counts}}

    def to_json(self, seconds: float) -> dict[str, Any]:
        """For people and programs."""
        each = max(1, self.requests)
        return {
            "tokens_per_s": self.tokens / seconds,
            "prompt_tokens": self.prompt_tokens / each,
            "completion_tokens": self.completion_tokens / each,
            "first_token_ms": _milliseconds(self.first),
            "between_tokens_ms": _milliseconds(self.between),
        }


class TextRecorder(Recorder):
    """Records the tokens of texts, too."""

    def __init__(self, start: float, stop: float) -> None:
        super().__init__(start, stop)
        self.text = TextFigures()

    def completed(self, meant: float, times: Sequence[float], usage: tuple[int, int] | None) -> None:
        """A text is complete.

        Args:
            meant: when its request should have left.
            times: when its tokens came, as far as they have text of their own.
            usage: the tokens of the prompt and the text; None where the server does not tell.
        """
        prompt_tokens, tokens = usage or (0, len(times))
        shown = [self.start <= time < self.stop for time in times]
        self.text.tokens += sum(shown) + (max(0, tokens - len(times)) if shown[-1] else 0)
        if meant < self.start:
            return
        self.text.requests += 1
        self.text.prompt_tokens += prompt_tokens
        self.text.completion_tokens += tokens
        self.text.first.add(array("d", [times[0] - meant]))
        self.text.between.add(array("d", [after - before for before, after in pairwise(times)]))


def _milliseconds(histogram: Histogram) -> dict[str, float | None]:
    figures = {f"p{percent:g}": histogram.percentile(percent) for percent in SHOWN}
    figures |= {"mean": histogram.mean, "max": histogram.largest}
    return {name: 1e3 * value if histogram.count else None for name, value in figures.items()}
