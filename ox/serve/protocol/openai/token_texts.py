"""The texts of single tokens, for log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.serve.generation.request import TokenEvent
from ox.serve.text.tokenizer import Tokenizer


class TokenTexts:
    """What tokens spell, each by itself."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def __getitem__(self, token: int) -> str:
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = self._tokenizer.decode([token], special=True)
        return text

    def chat(self, event: TokenEvent) -> dict[str, Any]:
        """A token of a chat's log-probabilities."""
        assert event.token is not None
        top = [self._entry(token, value) for token, value in event.top_logprobs]
        return {**self._entry(event.token, event.logprob or 0.0), "top_logprobs": top}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        text = self[token]
        whole = "\N{REPLACEMENT CHARACTER}" not in text  # else a part of a character, whose bytes are not known here
        return {"token": text, "logprob": finite(logprob), "bytes": list(text.encode()) if whole else None}

    def completion(self, events: Sequence[TokenEvent], offset: int) -> tuple[dict[str, Any], int]:
        """Log-probabilities of /v1/completions, where the first token begins at `offset`; and where the next begins."""
        found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for event in events:
            assert event.token is not None
            found["tokens"].append(self[event.token])
            found["token_logprobs"].append(finite(event.logprob or 0.0))
            found["top_logprobs"].append({self[token]: finite(value) for token, value in event.top_logprobs})
            found["text_offset"].append(offset)
            offset += len(self[event.token])
        return found, offset


def finite(logprob: float) -> float:
    """JSON has no infinities; OpenAI's number for a token that was almost impossible."""
    return max(logprob, -9999.0)
