"""The texts of single tokens, for log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.serve.generation.request import TokenEvent, TokenLogprob
from ox.serve.text.token_bytes import TokenBytes
from ox.serve.text.tokenizer import Tokenizer


class TokenTexts:
    """What tokens spell, each by itself.

    Args:
        tokenizer: the model's.
        as_ids: tokens are named `token_id:42`, in vLLM's form.
    """

    def __init__(self, tokenizer: Tokenizer, as_ids: bool = False) -> None:
        self._bytes, self._as_ids = TokenBytes(tokenizer), as_ids

    def chat(self, event: TokenEvent) -> dict[str, Any]:
        """A token of a chat's log-probabilities."""
        assert event.token is not None
        top = [self._entry(token, value) for token, value in event.top_logprobs]
        return {**self._entry(event.token, event.logprob or 0.0), "top_logprobs": top}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        spelled = self._bytes[token]
        name = f"token_id:{token}" if self._as_ids else spelled.decode(errors="replace")
        return {"token": name, "logprob": finite(logprob), "bytes": list(spelled)}

    def prompt(self, logprobs: Sequence[TokenLogprob], most: int) -> list[dict[str, Any] | None]:
        """Log-probabilities of a prompt in vLLM's form, with the `most` likeliest tokens at each place; null for the
        first token."""
        places: list[dict[str, Any] | None] = [None]
        for each in logprobs:
            top = [(token, value, rank) for rank, (token, value) in enumerate(each.top_logprobs[:most], start=1)]
            places.append({
                str(token): {"logprob": finite(value), "rank": rank, "decoded_token": self.name(token)}
                for token, value, rank in (*top, (each.token, each.logprob, each.rank))
            })  # fmt: skip
        return places

    def name(self, token: int) -> str:
        """The text of a token; of a part of a character its bytes, in OpenAI's form."""
        if self._as_ids:
            return f"token_id:{token}"
        spelled = self._bytes[token]
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)

    def length(self, token: int) -> int:
        """The number of characters that begin in a token."""
        return sum(byte & 0xC0 != 0x80 for byte in self._bytes[token])


class Logprobs:
    """Log-probabilities of /v1/completions, token by token. The chosen token is always among the likeliest.

    Args:
        texts: names the tokens.
        most: so many of the likeliest tokens at each place.
    """

    def __init__(self, texts: TokenTexts, most: int) -> None:
        self._texts, self._most, self._offset = texts, most, 0
        self._found = self._nothing()

    def add_prompt(self, first: int, logprobs: Sequence[TokenLogprob]) -> None:
        """The tokens of a prompt, of which the first one has no probability."""
        self._add(first, None, ())
        for each in logprobs:
            self._add(each.token, each.logprob, each.top_logprobs[: self._most])

    def add(self, events: Sequence[TokenEvent]) -> dict[str, Any]:
        """The tokens of a text; returns what came since the last time."""
        for event in events:
            assert event.token is not None
            self._add(event.token, event.logprob or 0.0, event.top_logprobs)
        found, self._found = self._found, self._nothing()
        return found

    def _add(self, token: int, logprob: float | None, top: Sequence[tuple[int, float]]) -> None:
        name, found = self._texts.name(token), self._found
        found["tokens"].append(name)
        found["token_logprobs"].append(None if logprob is None else finite(logprob))
        likeliest = {self._texts.name(each): finite(value) for each, value in top}
        found["top_logprobs"].append(None if logprob is None else {**likeliest, name: finite(logprob)})
        found["text_offset"].append(self._offset)
        self._offset += self._texts.length(token)

    def _nothing(self) -> dict[str, list[Any]]:
        return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def finite(logprob: float) -> float:
    """JSON has no infinities; OpenAI's number for a token that was almost impossible."""
    return max(logprob, -9999.0)
