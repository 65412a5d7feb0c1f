"""Whether an answer is a stream, and what its events have."""

from __future__ import annotations

from typing import NamedTuple

from ox.serve.protocol.text.fields import Fields, ParameterError


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
