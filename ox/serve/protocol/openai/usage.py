"""How many tokens a request took, and whether its stream says so."""

from __future__ import annotations

from typing import Any, NamedTuple

from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.text_job import TokenCounts


class StreamOptions(NamedTuple):
    """OpenAI's stream_options."""

    include_usage: bool = False


def read_stream_options(fields: Fields) -> tuple[bool, StreamOptions]:
    """`stream` and `stream_options`.

    Raises:
        ParameterError: one is wrong, or there are options without a stream.
    """
    stream, given = fields.flag("stream"), fields.object("stream_options")
    if given is None:
        return stream, StreamOptions()
    if not stream:
        raise ParameterError("stream_options", "'stream_options' is only for streams", hint='"stream": true')
    inner = Fields(given, "stream_options.")
    options = StreamOptions(inner.flag("include_usage"))
    inner.flag("include_obfuscation")  # OpenAI pads its events against listeners; TLS here leaves their sizes visible
    inner.finish()
    return stream, options


def usage_document(counts: TokenCounts) -> dict[str, Any]:
    """OpenAI's `usage`."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }
