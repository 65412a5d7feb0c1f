"""The chat on the page, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ox.serve import ModelConfig, Server

pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("jinja2", reason="the extra text is not installed")

FORM = "document.querySelector('form[aria-label=\"Chat with tiny\"]')"


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from tiny_decoder import write_decoder

    folder = write_decoder(tmp_path_factory.mktemp("decoders"), temperature=0.0)
    with Server([folder], options=ModelConfig(threads=1)) as running:
        yield running


def send(page: Any, text: str) -> None:
    page.run(
        f"(() => {{ const form = {FORM}; form.querySelector('textarea').value = {json.dumps(text)};"
        "form.requestSubmit(); })()"
    )


def test_a_conversation(browser: Any, talker: Server) -> None:
    browser.open(talker.url)
    browser.until(FORM)
    send(browser, "<b>hi</b>")
    browser.until(f"{FORM}.querySelector('[role=status]').textContent.includes('tokens in')")
    answer = browser.run(f"{FORM}.querySelector('.assistant').textContent")
    assert answer and browser.run(f"{FORM}.querySelector('.user').textContent") == "<b>hi</b>"
    assert browser.run("document.querySelectorAll('.talk b').length") == 0  # a text is a text
    assert not browser.problems

    send(browser, "x" * 1000)  # does not fit into the context
    assert "longer than the model's context" in browser.until(f"{FORM}.querySelector('.error')?.textContent")
    browser.problems.clear()  # the refusal itself, which a console shows

    browser.run(f"[...{FORM}.querySelectorAll('button')].find((b) => b.textContent === 'New conversation').click()")
    assert browser.run(f"{FORM}.querySelectorAll('.talk p').length") == 0


def test_stop(browser: Any, talker: Server) -> None:
    engine = talker.models[0].generation
    assert engine is not None
    held: list[Any] = []
    submit = engine.submit

    def slowly(*arguments: Any) -> Any:
        handle = submit(*arguments)
        handle.pause()
        held.append(handle)
        return handle

    browser.open(talker.url)
    browser.until(FORM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "submit", slowly)
        send(browser, "hi")
        stop = f"[...{FORM}.querySelectorAll('button')].find((b) => b.textContent === 'Stop')"
        browser.until(f"!{stop}.hidden")
        browser.run(f"{stop}.click()")
        browser.until(f"{FORM}.querySelector('[role=status]').textContent === 'stopped'")
    browser.until(f"{stop}.hidden")


def test_the_page_shows_the_model(browser: Any, talker: Server, tmp_path: Path) -> None:
    browser.open(talker.url)
    browser.until(FORM)
    assert "tokens of many texts in one run" in browser.until("document.querySelector('details.model').innerText")
    assert browser.picture(tmp_path / "page.png").stat().st_size > 10_000
