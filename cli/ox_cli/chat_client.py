"""A client of OpenAI's chat API, for `ox chat`."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from ox.errors import ArgumentError, OxError

SILENCE_S = 300.0  # a server of ours sends a comment every 15 seconds


class ChatClient:
    """Talks with one model of a server.

    Args:
        url: of the server, with or without /v1.
        model: its name; None for the only one.
        key: API key.
        parameters: more of each request; those that are None are left out.

    Raises:
        ArgumentError: the URL is none, or there is no such choice of a model.
        OxError: the server cannot be reached, or refuses.
    """

    def __init__(self, url: str, model: str | None, key: str | None, **parameters: Any) -> None:
        parts = urlsplit(url)
        if not parts.hostname:
            raise ArgumentError("that is not the URL of a server", expected="http://127.0.0.1:8000", got=url)
        self._url, self._secure, self._place = url, parts.scheme == "https", parts.netloc.rpartition("@")[2]
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"content-type": "application/json"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self._parameters = {name: value for name, value in parameters.items() if value is not None}
        self.model = model or self._only_model()

    def answer(self, messages: Sequence[dict[str, Any]]) -> Iterator[str]:
        """The next message, in pieces. Closing the iterator ends it on the server, too.

        Raises:
            OxError: the server refuses, or fails in the middle.
        """
        body = {"model": self.model, "messages": messages, "stream": True, **self._parameters}
        connection = self._connect()
        try:
            response = self._send(connection, "POST", "/chat/completions", json.dumps(body))
            for line in response:
                event = line.strip().removeprefix(b"data: ")
                if event == b"[DONE]":
                    return
                if not line.startswith(b"data: "):
                    continue
                document = json.loads(event)
                if "error" in document:
                    raise OxError(_message(document), where=self._url)
                for choice in document.get("choices", ()):
                    text = choice["delta"].get("content")
                    if text:
                        yield text
            raise OxError("the server ended in the middle of its answer", where=self._url)
        except (OSError, http.client.HTTPException) as error:
            raise OxError("the connection to the server broke", where=self._url, got=str(error)) from None
        finally:
            connection.close()

    def _only_model(self) -> str:
        connection = self._connect()
        try:
            models = json.loads(self._send(connection, "GET", "/models").read())["data"]
        finally:
            connection.close()
        names = [model["id"] for model in models]
        if len(names) != 1:
            expected = ", ".join(names) or "a server with a model that makes texts"
            raise ArgumentError("which model?" if names else "the server has no model that makes texts",
                                where=self._url, expected=expected,
                                hint="--model NAME" if names else "a folder of ox.export.save_decoder")  # fmt: skip
        return str(names[0])

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._place, timeout=SILENCE_S)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None
    ) -> http.client.HTTPResponse:
        try:
            connection.request(method, self._path + path, body, self._headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            hint = "ox serve FOLDER"
            raise OxError("the server cannot be reached", where=self._url, got=str(error), hint=hint) from None
        if response.status != 200:
            data = response.read()
            try:
                message = _message(json.loads(data))
            except (ValueError, KeyError, TypeError):
                message = f"status {response.status}"
            raise OxError(message, where=self._url)
        return response


def _message(document: dict[str, Any]) -> str:
    error = document["error"]
    return str(error["message"] if isinstance(error, dict) else error)
