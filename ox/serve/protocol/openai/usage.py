"""How many tokens a request took."""

from __future__ import annotations

from typing import Any

from ox.serve.protocol.text.text_job import TokenCounts


def usage_document(counts: TokenCounts) -> dict[str, Any]:
    """OpenAI's `usage`."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }
