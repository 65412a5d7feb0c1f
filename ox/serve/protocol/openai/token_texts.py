"""The texts of single tokens, for log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.serve.generation.request import TokenEvent
from ox.serve.text.token_bytes import TokenBytes
from ox.serve.text.tokenizer import Tokenizer


class TokenTexts:
    """What tokens spell, each by itself."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes = TokenBytes(tokenizer)

    def chat(self, event: TokenEvent) -> dict[str, Any]:
        """A token of a chat's log-probabilities."""
        assert event.token is not None
        top = [self._entry(token, value) for token, value in event.top_logprobs]
        return {**self._entry(event.token, event.logprob or 0.0), "top_logprobs": top}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        spelled = self._bytes[token]
        return {"token": spelled.decode(errors="replace"), "logprob": finite(logprob), "bytes": list(spelled)}

    def completion(self, events: Sequence[TokenEvent], offset: int) -> tuple[dict[str, Any], int]:
        """Log-probabilities of /v1/completions, where the first token begins at `offset`; and where the next begins.
        The chosen token is always among the likeliest."""
        found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for event in events:
            assert event.token is not None
            chosen = (event.token, event.logprob or 0.0)
            found["tokens"].append(self._name(event.token))
            found["token_logprobs"].append(finite(chosen[1]))
            top = (*event.top_logprobs, chosen)
            found["top_logprobs"].append({self._name(token): finite(value) for token, value in top})
            found["text_offset"].append(offset)
            offset += sum(byte & 0xC0 != 0x80 for byte in self._bytes[event.token])  # characters that begin in it
        return found, offset

    def _name(self, token: int) -> str:
        """The text of a token; of a part of a character its bytes, in OpenAI's form."""
        spelled = self._bytes[token]
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def finite(logprob: float) -> float:
    """JSON has no infinities; OpenAI's number for a token that was almost impossible."""
    return max(logprob, -9999.0)
