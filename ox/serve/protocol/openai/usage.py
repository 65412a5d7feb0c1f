"""How many tokens a request took."""

from __future__ import annotations

from typing import Any

from ox.serve.protocol.text.text_job import TokenCounts


def usage_document(counts: TokenCounts, reasoning: int | None = None) -> dict[str, Any]:
    """OpenAI's `usage`; `reasoning` has the tokens of the model's reasoning, which completions do not tell."""
    details = {} if reasoning is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        **details,
    }
