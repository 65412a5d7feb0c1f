"""The chat template of a model: messages to the text that the model continues."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

from ox.errors import DeviceError, LoadError, ServeError
from ox.installation import install_command
from ox.serve.protocol.text.render_budget import MAX_TOTAL, BudgetError, RenderBudget
from ox.serve.protocol.text.template_sandbox import BUDGET, NAME, TemplateError, compile_template

CONFIG = "tokenizer_config.json"
FILE = "chat_template.jinja"
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
LARGEST = 16 << 20  # bytes of a file with a template
GENERATION = {"add_generation_prompt": True}
MARK = "\ue000end\ue001"  # where the prompt ends; of characters for private use, which templates leave alone


class ChatTemplate:
    """A template in the form of Hugging Face's tokenizers.

    Args:
        source: Jinja.
        special: the special tokens that it may use, such as bos_token.
        where: its file, for errors.

    Attributes:
        names: all words of the source.

    Raises:
        LoadError: it is wrong, with its line, or it does more than a template may.
        DeviceError: Jinja is not installed.
    """

    def __init__(self, source: str, special: Mapping[str, str], where: str) -> None:
        try:
            from jinja2 import TemplateSyntaxError
            from jinja2.exceptions import SecurityError
        except ImportError as error:
            raise DeviceError(
                f"{where} needs the package jinja2", got=str(error), hint=install_command("text")
            ) from None
        self.source, self.special = source, dict(special)
        self.names = frozenset(re.findall(r"\w+", source))
        try:
            self._template = compile_template(source)
        except TemplateSyntaxError as error:
            raise LoadError("the chat template is wrong", where=f"{where}, line {error.lineno} of the template",
                            got=error.message) from None  # fmt: skip
        except (BudgetError, RecursionError, SyntaxError, MemoryError) as error:
            raise LoadError(
                "the chat template is wrong", where=where, got=str(error)[:200] or "nested too deep"
            ) from None
        try:
            self._render([{"role": "user", "content": "Hello"}], None, GENERATION)
        except (BudgetError, SecurityError) as error:
            raise LoadError("the chat template does what no template may", where=where, got=str(error)) from None
        except Exception:  # it may want other messages than this one
            return

    @classmethod
    def read(cls, folder: Path) -> ChatTemplate | None:
        """The template of a folder: chat_template.jinja, or the one in tokenizer_config.json; None without one.

        Raises:
            LoadError: a file cannot be read, or the template is wrong.
        """
        config = _config(folder / CONFIG)
        special = {name: _token(config.get(name)) for name in SPECIAL}
        file = folder / FILE
        if file.is_file():
            return cls(_text(file), special, str(file))
        source = config.get("chat_template")
        if isinstance(source, list):  # several by name
            named = {each.get("name"): each.get("template") for each in source if isinstance(each, dict)}
            source = named.get("default")
        if source is None:
            return None
        if not isinstance(source, str):
            raise LoadError("'chat_template' is not a text", where=str(folder / CONFIG), got=type(source).__name__)
        return cls(source, special, str(folder / CONFIG))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        variables: Mapping[str, Any] = GENERATION,
    ) -> str:
        """The prompt of a conversation.

        Args:
            messages: their contents are texts.
            tools: that are offered.
            variables: more of the template. With `continue_final_message` the prompt ends where the content of the last
                message does, or its reasoning where that is all.

        Raises:
            ServeError: the template refuses the messages, or fails, or there is no text to continue (400).
        """
        key = continued_key(messages[-1]) if variables.get("continue_final_message") else ""
        try:
            return self._continued(messages, tools, variables, key) if key else self._render(messages, tools, variables)
        except TemplateError as error:
            raise ServeError("the model's chat template refuses the messages", got=str(error)) from None
        except Exception as error:
            places = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == NAME]
            where = f"line {places[-1]} of the template" if places else ""
            got = f"{type(error).__name__}: {error}"[:300]
            raise ServeError("the model's chat template fails on these messages", where=where, got=got) from None

    def _continued(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, variables: Mapping[str, Any], key: str
    ) -> str:
        marked = [
            *messages[:-1],
            {**messages[-1], key: str(messages[-1][key]) + MARK},
        ]  # the text may stand there twice
        before, mark, _ = self._render(marked, tools, variables).rpartition(MARK)
        if not mark:
            raise TemplateError("it does not show the last message")
        return before

    def _render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, variables: Mapping[str, Any]
    ) -> str:
        token = BUDGET.set(RenderBudget())
        try:
            parts, size = [], 0
            for part in self._template.generate(
                {**self.special, **variables, "messages": messages, "tools": tools or None}
            ):
                parts.append(part)
                size += len(part)
                if size > MAX_TOTAL:
                    raise BudgetError("too much text")
            return "".join(parts)
        finally:
            BUDGET.reset(token)


def continued_key(message: Mapping[str, Any]) -> str:
    """The key of the text that an answer continues: `content`, or `reasoning_content` where that is all.

    Raises:
        ServeError: the message has no text.
    """
    for key in ("content", "reasoning_content"):
        if str(message.get(key) or "").strip():
            return key
    raise ServeError("the last message has no text to continue", expected="a text as its content")


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise LoadError(f"{path} is too large", expected=f"at most {LARGEST} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{path} cannot be read", got=str(error)[:200]) from None


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path} is not JSON", got=str(error)[:200]) from None
    if not isinstance(config, dict):
        raise LoadError(f"{path} is not a JSON object", got=type(config).__name__)
    return config


def _token(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
