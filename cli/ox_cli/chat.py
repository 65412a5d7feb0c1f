"""`ox chat`: a conversation with a model in the terminal."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ox_cli.chat_client import ChatClient

HELP = "/reset forgets the conversation · /exit leaves · Ctrl-C stops an answer"


def chat(
    model: Annotated[str, typer.Argument(help="A folder of ox.export.save_decoder, or the URL of a server.")],
    name: Annotated[
        str | None, typer.Option("--model", help="Model on the server.", show_default="its only one")
    ] = None,
    system: Annotated[str | None, typer.Option(help="What the model is told before the conversation.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="0 for the likeliest words, higher for others.", show_default="the model's")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="The most tokens of an answer.", show_default="what the context has room for")
    ] = None,
    key: Annotated[str | None, typer.Option(help="API key of the server.", envvar="OX_API_KEY")] = None,
) -> None:
    """Talk with a model that makes texts. Text that is piped in is one message, and only its answer is printed."""
    from ox_cli.chat_client import ChatClient

    piped = None if sys.stdin is not None and sys.stdin.isatty() else _piped()  # first: a model takes a while to load
    with ExitStack() as stack:
        if not model.startswith(("http://", "https://")):
            from ox.errors import ArgumentError
            from ox.serve import Server

            if ":" in model and not Path(model).exists():
                raise ArgumentError("not the URL of a server, and there is no such file", expected=f"http://{model}",
                                    got=model)  # fmt: skip
            server = stack.enter_context(Server([model], port=0, watch=False))
            if all(each.text is None for each in server.models):
                raise ArgumentError(f"{model} makes no texts", expected="a folder of ox.export.save_decoder")
            model = server.url
        client = ChatClient(model, name, key, temperature=temperature, max_tokens=max_tokens)
        talk = Conversation(client, system)
        if piped is None:
            talk.run()
        else:
            talk.answer(piped)
            sys.stdout.write("\n")


def _piped() -> str:
    """The message on standard input, without the end of its last line. Raises UsageError for what is no text."""
    from ox_cli.errors import UsageError

    text = "" if sys.stdin is None else sys.stdin.read()
    try:
        text.encode()
    except UnicodeEncodeError:  # Python reads other bytes as halves of characters
        raise UsageError("the input is no UTF-8", hint="text") from None
    if not text.strip():
        raise UsageError("there is no message on standard input", hint="echo Hello | ox chat MODEL")
    return text.rstrip("\r\n")


class Conversation:
    """The messages so far, and the terminal."""

    def __init__(self, client: ChatClient, system: str | None) -> None:
        from rich.console import Console

        self._client = client
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self._messages: list[dict[str, Any]] = list(self._first)
        self._console = Console(highlight=False, soft_wrap=True)

    def run(self) -> None:
        """Reads messages and commands until /exit or the end of the input."""
        from ox.errors import OxError

        with suppress(ImportError):  # history and editing of lines, where the system has it
            import readline  # noqa: F401
        self._console.print(f"[bold]{self._client.model}[/bold] [dim]· {HELP}[/dim]")
        while True:
            try:
                text = input("> ").strip()
            except EOFError:
                self._console.print()
                return
            except KeyboardInterrupt:
                self._console.print(f"\n[dim]{HELP}[/dim]")
                continue
            if text == "/exit":
                return
            if text == "/reset":
                self._messages = list(self._first)
                self._console.print("[dim]a new conversation[/dim]")
            elif text.startswith("/"):
                self._console.print(f"[dim]{HELP}[/dim]")
            elif text:
                try:
                    self.answer(text)
                    self._console.print()
                except OxError as error:
                    self._messages.pop()  # it was not answered
                    self._console.print(str(error), style="red", markup=False)

    def answer(self, text: str) -> None:
        """Sends a message and prints the answer while it comes."""
        self._messages.append({"role": "user", "content": text})
        parts: list[str] = []
        try:
            for part in self._client.answer(self._messages):
                parts.append(part)
                if self._console.is_terminal:  # which an escape sequence could change
                    part = "".join(letter for letter in part if letter.isprintable() or letter in "\n\t")
                self._console.print(part, end="", markup=False, emoji=False)
                self._console.file.flush()
        except KeyboardInterrupt:
            self._console.print(" [dim](stopped)[/dim]", end="")
        self._messages.append({"role": "assistant", "content": "".join(parts)})
