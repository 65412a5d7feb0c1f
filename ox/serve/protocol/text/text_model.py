"""A model that makes texts, with what the dialects need beside its engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ox.errors import ServeError
from ox.serve.generation.engine import GenerationEngine
from ox.serve.protocol.text.chat_template import ChatTemplate
from ox.serve.protocol.text.fields import ParameterError
from ox.serve.protocol.text.reasoning import ReasoningMarks, find_reasoning
from ox.serve.protocol.text.tool_formats import ToolFormat, find_format, named_format
from ox.serve.telemetry.stages import Stages
from ox.serve.text.tokenizer import Tokenizer

# the last part in OpenAI's words: clients look for them
CONTEXT_LENGTH = "at most {0} tokens: this model's maximum context length is {0} tokens"


class TextModel:
    """A decoder with its tokenizer and its chat template.

    Args:
        name, version: what it answers to.
        engine: makes the texts.
        stages: counts its requests.
        folder: tokenizer_config.json and chat_template.jinja are beside the model.
        tool_parser: the name of a format of calls, or "none"; None to see it in the chat template.

    Attributes:
        template: None where the folder has none.
        tool_format: how the model writes calls of tools; None if that is not known.
        call_marks, reasoning_marks: special tokens that stand around calls and reasoning.
        reasoning: the marks of what the model thinks; None where the chat template has none.

    Raises:
        LoadError: the chat template is wrong.
    """

    def __init__(
        self, name: str, version: str, engine: GenerationEngine, folder: Path, stages: Stages,
        tool_parser: str | None = None,
    ) -> None:  # fmt: skip
        self.name, self.version, self.engine, self.stages = name, version, engine, stages
        self.clock = engine.clock
        self.template = ChatTemplate.read(folder)
        source = "" if self.template is None else self.template.source
        self.tool_format: ToolFormat | None = find_format(source)
        if tool_parser is not None:
            self.tool_format = None if tool_parser == "none" else named_format(tool_parser, source)
        self.reasoning: ReasoningMarks | None = find_reasoning(source)
        self.call_marks = self._special(self.tool_format.marks if self.tool_format else ())
        self.reasoning_marks = self._special(self.reasoning or ())
        names = [] if engine.tokenizer is None else engine.tokenizer.raw.get_vocab()
        self._longest_token = max(map(len, names), default=1)  # in characters, or bytes of them

    def _special(self, marks: Sequence[str]) -> frozenset[int]:
        """Those of these texts that are special tokens."""
        if self.engine.tokenizer is None:
            return frozenset()
        tokens = [token for mark in marks if (token := self.engine.tokenizer.id_of(mark)) is not None]
        return frozenset(token for token in tokens if not self.engine.tokenizer.decode([token]))

    @property
    def defaults(self) -> Mapping[str, Any]:
        """generation_config.json."""
        return self.engine.defaults

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a prompt, see `Tokenizer.encode`.

        Raises:
            ParameterError: so long that it cannot fit into the context; then it is not tokenised.
            ServeError: the model has no tokenizer.
        """
        tokenizer = self.tokenizer
        if len(text) > 4 * self._longest_token * self.engine.context_length:
            raise ParameterError(
                "prompt", "the prompt is longer than the model's context", code="context_length_exceeded",
                expected=CONTEXT_LENGTH.format(self.engine.context_length), got=f"{len(text)} characters",
            )  # fmt: skip
        return tokenizer.encode(text, special)

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises ServeError if the model has none."""
        if self.engine.tokenizer is None:
            hint = "prompts of token ids, or a tokenizer.json beside the model"
            raise ServeError(f"model '{self.name}' has no tokenizer", hint=hint)
        return self.engine.tokenizer
