"""The chat on the page, in a browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ox.serve import ModelConfig, Server
from ox.serve.generation.request import GenerationRequest, TokenEvent

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


def shown(page: Any) -> dict[str, str]:
    """What the page says of the engine."""
    found: dict[str, str] = page.run(
        "Object.fromEntries([...document.querySelectorAll('.engine dt')]"
        ".map((term) => [term.textContent, term.nextSibling.textContent]))"
    )
    return found


def test_the_engine_on_the_page(browser: Any, talker: Server) -> None:
    """Its figures are those of the engine, and follow it."""
    engine = talker.models[0].generation
    assert engine is not None
    browser.open(talker.url)
    browser.until(FORM)
    request = GenerationRequest([5, 6, 7], max_tokens=40, ignore_eos=True)
    done = threading.Event()

    def on_event(event: TokenEvent) -> None:
        if event.finish_reason is not None:
            done.set()

    engine.submit(request, on_event, print)
    assert done.wait(60)
    browser.until("/median .+ [mµ]?s, p99/.test(document.querySelector('.engine').textContent)")
    browser.until("[...document.querySelectorAll('#tiles dt')].some((tile) => tile.textContent === 'tokens/s')")
    now, figures = engine.stats(), shown(browser)
    assert figures["first token"].startswith("median ") and figures["between tokens"].startswith("median ")
    assert figures["preemptions"] == str(now["preemptions"]) and float(figures["tokens/s"].split()[0]) > 0
    in_slots = now["blocks"] - now["kept_blocks"]
    assert f"blocks: {in_slots} in slots, {now['kept_blocks']} kept" in figures["cache"] and now["kept_blocks"] > 0
    assert figures["running"] == figures["waiting"] == "0"

    handle = engine.submit(request, lambda event: None, print)  # is held, and so it stays
    handle.pause()
    found = "[...document.querySelectorAll('.engine dt')].find((term) => term.textContent === '{}').nextSibling"
    browser.until(
        f"Number({found.format('running')}.textContent) + Number({found.format('waiting')}.textContent) === 1"
    )
    handle.cancel()
    browser.until(
        f"Number({found.format('running')}.textContent) + Number({found.format('waiting')}.textContent) === 0"
    )
    assert not browser.problems
