"""What a model thinks before it answers, apart from the answer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ox.serve.protocol.text.marks import overlap
from ox.serve.protocol.text.message_parts import Reasoning

Step = Literal["begin", "leading", "inside", "after", "text"]


class ReasoningMarks(NamedTuple):
    """What stands before and after the reasoning of a model."""

    begin: str
    end: str


MARKS = (ReasoningMarks("<think>", "</think>"), ReasoningMarks("[THINK]", "[/THINK]"))


def find_reasoning(source: str) -> ReasoningMarks | None:
    """The marks of a model's reasoning, by the source of its chat template; None where the template has none."""
    return next((marks for marks in MARKS if marks.begin in source or marks.end in source), None)


def opens_reasoning(prompt: str, marks: ReasoningMarks, continued: str = "") -> bool:
    """Whether a prompt ends inside of reasoning, which the template has begun, or the message that is `continued`."""
    return prompt.rstrip().endswith(marks.begin) or continued.rfind(marks.begin) > continued.rfind(marks.end)


def ends_reasoning(prompt: str, marks: ReasoningMarks) -> bool:
    """Whether a prompt ends after reasoning, so that the answer begins at once."""
    return prompt.rstrip().endswith(marks.end)


class ReasoningParser:
    """Divides a text into reasoning and what follows it. Spaces around the reasoning are left out.

    Args:
        marks: of the reasoning.
        begun: whether the prompt has begun it.
    """

    def __init__(self, marks: ReasoningMarks, begun: bool) -> None:
        self._marks, self._begun = marks, begun
        self._held = ""  # what was not decided
        self._step: Step = "begin"

    def add(self, text: str) -> list[str | Reasoning]:
        """What is known after more text; none of it is empty."""
        if self._step == "text":
            return [text] if text else []
        self._held += text
        found = list[str | Reasoning]()
        step: Step = "text"
        while self._step not in (step, "text"):
            step = self._step
            if step == "begin":
                self._begin()
            elif step == "inside":
                self._inside(found)
            else:
                self._held = self._held.lstrip()
                if self._held:
                    self._step = "inside" if step == "leading" else "text"
        if self._step == "text" and self._held:
            found.append(self._held)
            self._held = ""
        return found

    def finish(self) -> list[str | Reasoning]:
        """What was held, where the text ends."""
        held, self._held = self._held, ""
        if self._step == "begin" and not self._begun:
            return [held] if held else []
        held = held.rstrip() if self._step == "inside" else held.strip() if self._step == "begin" else ""
        return [Reasoning(held)] if held else []

    def _begin(self) -> None:
        """Reads the mark before the reasoning. Some models write it after a prompt that ends with it, too."""
        text, mark = self._held.lstrip(), self._marks.begin
        if text.startswith(mark):
            self._held, self._step = text.removeprefix(mark), "leading"
        elif not mark.startswith(text):
            self._step = "leading" if self._begun else "text"

    def _inside(self, found: list[str | Reasoning]) -> None:
        end = self._marks.end
        thought, mark, rest = self._held.partition(end)
        if mark:
            self._held, self._step = rest, "after"
            thought = thought.rstrip()
        else:
            thought = thought[: len(thought) - overlap(thought, end)].rstrip()
            self._held = self._held[len(thought) :]
        if thought:
            found.append(Reasoning(thought))
