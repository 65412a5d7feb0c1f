"""An answer as a stream of events, in the form that OpenAI's completions and chats share."""

from __future__ import annotations

from typing import Any

import orjson

from ox.errors import OxError
from ox.serve.access.client import Client
from ox.serve.protocol.openai.errors import error_event
from ox.serve.protocol.openai.token_texts import TokenTexts
from ox.serve.protocol.openai.usage import usage_document
from ox.serve.protocol.text.sampling import TextOptions
from ox.serve.protocol.text.stream_options import StreamOptions
from ox.serve.protocol.text.text_answer import StreamedAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.transport.http import Exchange

DONE = b"data: [DONE]\n\n"
AFTER = b',"logprobs":null,"finish_reason":null'


class ChoiceStream(StreamedAnswer):
    """An event for each piece of text; the JSON around the texts is made once.

    Args:
        head: what all events begin with.
        part: the name of what a choice has new, "text" or "delta".
        count: the number of choices.
        options, stream_options: of the request.
        token_ids: tokens of log-probabilities are shown as their ids.

    Attributes:
        before: by choice, what stands before its new part.
        after, end: what stands after a part that is not the last, and at the end of each event.
        texts: how tokens are shown, where their probabilities were asked for.
    """

    def __init__(
        self, model: TextModel, exchange: Exchange, client: Client, *, head: dict[str, Any], part: bytes, count: int,
        options: TextOptions, stream_options: StreamOptions, token_ids: bool,
    ) -> None:  # fmt: skip
        super().__init__(exchange, model, client)
        self._include_usage, self._continuous = stream_options.include_usage, stream_options.continuous_usage
        self._start = b"data: " + orjson.dumps(head)[:-1]
        self.before = [b'%b,"choices":[{"index":%d,"%b":' % (self._start, index, part) for index in range(count)]
        self.end = b"}]%b}\n\n" % (b',"usage":null' if self._include_usage else b"")
        self.after = AFTER + self.end
        self.texts = None if options.logprobs is None else TokenTexts(model.tokenizer, token_ids)

    def count_usage(self) -> None:
        """Before an event: the usage until then stands in it, where the client wants that."""
        if self._continuous:
            self.end = b'}],"usage":%b}\n\n' % orjson.dumps(self.usage(self.job.counts))
            self.after = AFTER + self.end

    def usage(self, counts: TokenCounts) -> dict[str, Any]:
        """The document of `counts`."""
        return usage_document(counts)

    def finish(self, usage: TokenCounts) -> None:
        if self._include_usage:
            self.stream.send(b'%b,"choices":[],"usage":%b}\n\n' % (self._start, orjson.dumps(self.usage(usage))))
        self.stream.send(DONE)
        super().finish(usage)

    def error_event(self, error: OxError) -> bytes:
        return error_event(error)
