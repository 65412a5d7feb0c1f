"""Whether an answer is a stream, and what its events have."""

from __future__ import annotations

from typing import NamedTuple

from ox.serve.protocol.text.fields import Fields, ParameterError


class StreamOptions(NamedTuple):
    """OpenAI's stream_options."""

    include_usage: bool = False
    continuous_usage: bool = False  # vLLM's continuous_usage_stats: each event has the usage until then


def read_stream_options(fields: Fields) -> tuple[bool, StreamOptions]:
    """`stream` and `stream_options`.

    Raises:
        ParameterError: one is wrong, or there are options without a stream.
    """
    stream, inner = fields.flag("stream"), fields.inside("stream_options")
    if inner is None:
        return stream, StreamOptions()
    if not stream:
        raise ParameterError("stream_options", "'stream_options' is only for streams", hint='"stream": true')
    options = StreamOptions(inner.flag("include_usage"), inner.flag("continuous_usage_stats"))
    inner.flag("include_obfuscation")  # OpenAI pads its events against listeners; TLS here leaves their sizes visible
    inner.finish()
    return stream, options
