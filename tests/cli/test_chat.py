"""`ox chat`: a folder, a server, a terminal, and text that is piped in."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from rich.console import Console

from ox.serve import ModelConfig, Server
from ox_cli.chat import Conversation
from ox_cli.chat_client import ChatClient
from ox_cli.main import main

pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("jinja2", reason="the extra text is not installed")


@pytest.fixture(scope="module")
def decoder(shared_folder: Callable[..., Path]) -> Path:
    from tiny_decoder import write_decoder

    return shared_folder("tiny_decoder", write_decoder) / "tiny"


@pytest.fixture(scope="module")
def server(decoder: Path) -> Iterator[Server]:
    with Server([decoder], options=ModelConfig(threads=1)) as running:
        yield running


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_piped_text(server: Server, decoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    client = ChatClient(server.url, None, None, temperature=0.0, max_tokens=8)
    wanted = "".join(client.answer([{"role": "user", "content": "hi"}]))
    assert wanted and client.model == "tiny"
    for model in (str(decoder), server.url, f"{server.url}/v1"):
        piped(monkeypatch, "hi\n")  # as of echo
        assert main(["chat", model, "--temperature", "0", "--max-tokens", "8"]) == 0
        assert capsys.readouterr().out == wanted + "\n"
    piped(monkeypatch, "hi")
    assert main(["chat", server.url, "--system", "be", "--temperature", "0", "--max-tokens", "8"]) == 0
    assert capsys.readouterr().out != wanted + "\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["http://127.0.0.1:9"], "cannot be reached"), (["/no/such/folder"], "no/such/folder"),
     (["http://"], "not the URL"), (["127.0.0.1:8000"], "http://127.0.0.1:8000"),
     (["SERVER", "--model", "nope"], "there is no model 'nope'"), (["SERVER", "--temperature", "9"], "'temperature'")],
)  # fmt: skip
def test_errors(server: Server, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    piped(monkeypatch, "hi")
    places = {"SERVER": server.url}
    assert main(["chat", *[places.get(each, each) for each in arguments]]) == 1
    assert words in capsys.readouterr().err


def test_a_model_of_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", ends[:1], ends[1:])
    path = tmp_path / "double.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    piped(monkeypatch, "hi")
    assert main(["chat", str(path)]) == 1
    assert "double.onnx makes no texts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff".decode(errors="surrogateescape"), "the input is no UTF-8"),
        ("", "there is no message on standard input"),
        (" \n\n", "there is no message on standard input"),
        (None, "there is no message on standard input"),
    ],
    ids=["no text", "empty", "blank", "closed"],
)
def test_input_that_is_no_message(text: str | None, words: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Nothing is asked of a server, which is not there."""
    if text is None:
        monkeypatch.setattr("sys.stdin", None)
    else:
        piped(monkeypatch, text)
    assert main(["chat", "http://127.0.0.1:9"]) == 2
    assert words in capsys.readouterr().err


def test_escape_sequences_do_not_reach_a_terminal() -> None:
    class Model:
        def answer(self, messages: Any) -> list[str]:
            return ["red \x1b[31m", "é\n", "日"]

    for terminal, shown in ((True, "red [31mé\n日"), (False, "red \x1b[31mé\n日")):
        talk, stream = Conversation(Model(), None), io.StringIO()  # type: ignore[arg-type]
        talk._console = Console(file=stream, force_terminal=terminal, soft_wrap=True, color_system=None)
        talk.answer("hi")
        assert stream.getvalue() == shown


class Terminal:
    """A process that thinks it talks with a person."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "ox_cli", "chat", *arguments]
        environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which tests in the background ignore
        )  # fmt: skip
        os.close(theirs)
        self.shown = ""

    def until(self, words: str) -> str:
        """What is shown up to these words."""
        while words not in self.shown:
            ready, _, _ = select.select([self._ours], [], [], 120)  # seconds without a word
            assert ready, self.shown
            self.shown += os.read(self._ours, 1 << 16).decode(errors="replace")
        before, _, self.shown = self.shown.partition(words)
        return before

    def type(self, text: str) -> None:
        os.write(self._ours, f"{text}\n".encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        os.close(self._ours)


def test_a_terminal(server: Server) -> None:
    """Ctrl-C ends an answer and not the conversation."""
    from ox.serve.generation.engine import GenerationEngine

    step, answering, go_on = GenerationEngine._step, threading.Event(), threading.Event()

    def held(self: GenerationEngine) -> bool:
        """After the first token of the answer it goes on when that is stopped."""
        if any(len(text.tokens) > text.prompt_length for text in self._scheduler.texts):
            answering.set()
            go_on.wait(120)
        return step(self)

    terminal = Terminal(server.url, "--max-tokens", "200", "--temperature", "1")
    try:
        terminal.until("/exit leaves")
        terminal.until("> ")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GenerationEngine, "_step", held)
            terminal.type("hello")
            terminal.until("hello")
            assert answering.wait(120)
            terminal.process.send_signal(signal.SIGINT)
            terminal.until("(stopped)")
            go_on.set()
            terminal.until("> ")
        terminal.type("/reset")
        terminal.until("a new conversation")
        terminal.until("> ")
        terminal.type("/exit")
        assert terminal.process.wait(60) == 0
    finally:
        go_on.set()
        terminal.close()
