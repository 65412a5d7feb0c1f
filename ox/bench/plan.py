"""What to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from ox.errors import ArgumentError

ARRIVALS = ("poisson", "constant")
OF_TEXTS, OF_TENSORS = ("prompt_words", "max_tokens"), ("binary", "rows", "shapes", "check")
DRAWN = ("prompt_words", "rows", "shapes")  # of random inputs


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Args:
        concurrency: clients that each wait for the response before the next request, one step for each number (1, 8 and
            32 where none is given). With `rates`, the one number is that of the connections (128).
        rates: requests a second that are sent whether or not answers come; one step for each number.
        arrivals: of `rates`: "poisson" (as from many independent users) or "constant".
        seconds: of each step that are measured.
        warmup: seconds before them that are not.
        timeout: seconds after which a request counts as unanswered.
        binary: tensors as bytes rather than as JSON numbers; gRPC always sends bytes.
        rows: the size of the first dimension, where the model leaves it open.
        shapes: input name to its whole shape, for models that leave more open.
        check: answers must equal the first one (within the tolerance of their type), not only look like it.
        processes: how many share the load.
        sequence: requests of a sequence, where the model has sequences; 0 for single requests.
        text: whether texts are generated, by OpenAI's completions, rather than tensors sent.
        prompt_words: of a prompt that is drawn.
        max_tokens: of a text; it has all of them where the server takes `ignore_eos`.
    """

    concurrency: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    arrivals: str = "poisson"
    seconds: float = 5.0
    warmup: float = 1.0
    timeout: float = 10.0
    binary: bool = True
    rows: int = 1
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    check: bool = False
    processes: int = 1
    sequence: int = 0
    text: bool = False
    prompt_words: int = 128
    max_tokens: int = 64

    def __post_init__(self) -> None:
        if self.arrivals not in ARRIVALS:
            raise ArgumentError("unknown arrivals", expected=" or ".join(ARRIVALS), got=self.arrivals)
        if self.rates and len(self.concurrency) > 1:
            raise ArgumentError("rates and a sweep of concurrency at once", hint="one of them")
        if self.sequence and (self.text or self.check):
            raise ArgumentError(f"{'text' if self.text else 'check'} and sequences at once", hint="one of them")
        if self.text:
            refuse(self, OF_TENSORS, "is for tensors, and text is asked for")
        else:
            refuse(self, OF_TEXTS, "is for texts, and tensors are asked for")
        ranges: list[tuple[str, float, float, float]] = [
            *(("concurrency", value, 1, 100_000) for value in self.concurrency),
            *(("rate", value, 1e-3, 1e7) for value in self.rates),
            ("seconds", self.seconds, 0.05, 1e6),
            ("warmup", self.warmup, 0, 1e6),
            ("timeout", self.timeout, 1e-3, 1e6),
            ("rows", self.rows, 1, 1 << 24),
            ("sequence", self.sequence, 0, 1 << 20),
            ("prompt_words", self.prompt_words, 1, 1 << 20),
            ("max_tokens", self.max_tokens, 1, 1 << 20),
            ("processes", self.processes, 1, min(self.clients)),
        ]
        for name, value, least, most in ranges:
            if not least <= value <= most:
                raise ArgumentError(f"{name} is out of range", expected=f"{least:,.10g} to {most:,.10g}",
                                    got=f"{value:,.10g}")  # fmt: skip

    @property
    def clients(self) -> tuple[int, ...]:
        return self.concurrency or ((128,) if self.rates else (1, 8, 32))


def refuse(plan: Plan, names: Sequence[str], why: str) -> None:
    """Raises ArgumentError if one of these fields is set, since it would be ignored."""
    for field in fields(plan):
        if field.name in names and getattr(plan, field.name) != field.default:
            raise ArgumentError(f"{field.name} {why}", hint="one of them")
