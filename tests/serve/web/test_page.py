"""The page at `/`: its parts, its policy, and what a browser makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image
from typer.testing import CliRunner

from ox.graph.contract import Contract, Sample, TensorInfo
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.web.page import page
from ox_cli.keys import app

EVIL = "<img src=x onerror=alert(1)>"


def test_the_policy_allows_what_is_in_the_page_and_nothing_else() -> None:
    body, head = page()
    text, policy = body.decode(), head.decode()
    assert text.count("<script>") == text.count("<style>") == 1 and "page.js" not in text and "page.css" not in text
    assert "default-src 'none'" in policy and "unsafe" not in policy and "connect-src 'self'" in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2
    assert not re.search(r"""(src|href)=["'](?!docs"|openapi.json"|metrics"|#|data:,)""", text)
    assert not re.search("[\"'`]/v[12]", text) and "innerHTML" not in text  # a proxy may publish it below a path
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)  # an XML name, not an address


def test_it_is_sent_with_its_policy(client: Any) -> None:
    status, headers, body = client.ask("GET", "/")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8" and body == page()[0]
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert client.ask("POST", "/")[0] in (403, 405)


@pytest.fixture(scope="module")
def shown(build: Any) -> Iterator[Server]:
    """A model that has a golden sample, labels and an image for an input; and one that has nothing."""
    weights = np.random.default_rng(3).standard_normal((64, 3)).astype(np.float32)
    row = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    labels = ("cat", EVIL, "dog")
    image = TensorInfo("image", "FP32", ("batch", 1, 8, 8), "a small picture")
    contract = Contract(
        (image,),
        (TensorInfo("scores", "FP32", ("batch", 3), None, labels),),
        (Sample({"image": row}, {"scores": row.reshape(1, 64) @ weights}),),
    )
    pets = build(
        "pets",
        [("Flatten", ["image"], ["flat"], {}), ("MatMul", ["flat", "w"], ["scores"], {})],
        {"image": (TensorProto.FLOAT, ["batch", 1, 8, 8])},
        {"scores": (TensorProto.FLOAT, ["batch", 3])},
        {"w": weights},
        contract=contract,
    )
    both = {"a": (TensorProto.STRING, ["batch", 2]), "b": (TensorProto.INT64, ["batch"])}
    nodes = [("Identity", ["a"], ["same"], {}), ("Identity", ["b"], ["number"], {})]
    outputs = {"same": (TensorProto.STRING, ["batch", 2]), "number": (TensorProto.INT64, ["batch"])}
    with Server([pets, build("words", nodes, both, outputs)], options=ModelConfig(device="cpu", instances=1)) as server:
        yield server


PETS = "document.querySelectorAll('details.model')[0]"
WORDS = "document.querySelectorAll('details.model')[1]"
RUN = ".querySelector('button[type=submit]')"
RESULT = ".querySelector('.result').innerText"


@pytest.fixture
def opened(browser: Any, shown: Server) -> Any:
    browser.open(shown.url)
    browser.until(f"{PETS}?.querySelector('textarea')?.value")
    yield browser
    assert browser.problems == []
    assert all(url.startswith((shown.url, "blob:")) for url in browser.requests)  # nothing from elsewhere


def test_a_click_runs_a_golden_sample(opened: Any, shown: Server, tmp_path: Path) -> None:
    assert opened.run(f"{PETS}.querySelector('[aria-pressed=true]').textContent") == "Golden 1"
    answered = f"Number(/([0-9]+) answered/.exec({PETS}.querySelector('.numbers').innerText)?.[1])"
    before = opened.run(answered) or 0  # by other tests
    opened.run(f"{PETS}{RUN}.click()")
    result = opened.until(f"{PETS}{RESULT}")
    assert "✓ expected output" in result and "dog" in result
    weights = np.random.default_rng(3).standard_normal((64, 3)).astype(np.float32)
    scores = np.linspace(0, 1, 64, dtype=np.float32) @ weights
    for score in scores:
        assert f"{score:.4f}" in result
    opened.until("document.querySelectorAll('#tiles dd').length >= 6")
    opened.until(f"{answered} > {before}")
    with Image.open(opened.picture(tmp_path / "page.png")) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    blue = (pixels == (0x23, 0x53, 0xD1)).all(1).sum()
    assert blue > 3000 and len(np.unique(pixels, axis=0)) > 50  # the button and the best bar


def test_what_a_file_says_is_text(opened: Any) -> None:
    """A label may hold anything."""
    opened.run(f"{PETS}{RUN}.click()")
    assert EVIL in opened.until(f"{PETS}{RESULT}")
    assert opened.run("document.querySelectorAll('img').length") == 0


def test_interface_and_proof(opened: Any) -> None:
    about = opened.until(f"{PETS}.innerText")
    for words in ("image", "a small picture", "FP32", "[?, 1, 8, 8]", "scores", "3 labels", "CPUExecutionProvider",
                  "batch size up to", "proven safe", "ready"):  # fmt: skip
        assert words in about, words


def test_an_image_is_drawn_at_the_models_size(opened: Any, tmp_path: Path) -> None:
    path = tmp_path / "grey.png"
    Image.new("RGB", (40, 24), (51, 51, 51)).save(path)
    opened.attach("details.model input[type=file]", path)
    opened.until(f"{PETS}.innerText.includes('grey.png, drawn at 8 × 8')")
    (tensor,) = json.loads(opened.run(f"{PETS}.querySelector('textarea').value"))["inputs"]
    assert tensor["shape"] == [1, 1, 8, 8] and set(tensor["data"]) == {0.2}  # 51 / 255
    opened.run(f"{PETS}.querySelectorAll('input[type=checkbox]')[1].click()")
    (tensor,) = json.loads(opened.run(f"{PETS}.querySelector('textarea').value"))["inputs"]
    assert set(tensor["data"]) == {0.8}
    opened.run(f"{PETS}{RUN}.click()")
    assert "dog" in opened.until(f"{PETS}{RESULT}")


def test_a_typed_request_and_its_error(opened: Any) -> None:
    opened.run(
        f"(() => {{ const text = {PETS}.querySelector('textarea'); text.value = '{{\"inputs\": []}}';"
        "text.dispatchEvent(new Event('input')) })()"
    )
    assert """-d '{"inputs":[]}'""" in opened.run(f"{PETS}.querySelector('.curl pre').textContent")
    opened.run(f"{PETS}{RUN}.click()")
    assert "input 'image' is missing" in opened.until(f"{PETS}{RESULT}")
    opened.problems.clear()  # the refusal itself, which a console shows


def test_with_the_keyboard_alone(opened: Any) -> None:
    """A model is unfolded, a sample is drawn and run without a pointer."""
    opened.run(f"{WORDS}.querySelector('summary').focus()")
    opened.press("Enter", 13, "\r")
    opened.until(f"{WORDS}.open && {WORDS}.querySelector('textarea')?.value")
    for _ in range(40):
        opened.press("Tab", 9)
        if opened.run(f"document.activeElement === {WORDS}{RUN}"):
            break
    opened.press("Enter", 13, "\r")
    result = opened.until(f"{WORDS}{RESULT}")
    assert re.search('"[ab]", "[ab]"', result) and "number" in result


def test_every_control_has_a_name(opened: Any) -> None:
    nameless = """[...document.querySelectorAll('input, textarea, button, a')].filter((e) => !(
        e.textContent.trim() || e.getAttribute('aria-label')
        || (e.labels && e.labels.length && e.labels[0].textContent.trim()))).map((e) => e.outerHTML)"""
    assert opened.run(nameless) == []
    assert opened.run("document.documentElement.lang") == "en" and opened.run("document.title").startswith("ox")
    assert opened.run("[...document.querySelectorAll('svg[role=img]')].every((s) => s.getAttribute('aria-label'))")


CONTRAST = """(() => {
  const channel = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return 'rgb(255,255,255)';
  };
  return [...document.querySelectorAll('h1, h2, h3, p, dt, dd, a, button, th, td, span, label, code, b, summary')]
    .filter((e) => e.offsetParent && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
    .map((e) => {
      const [x, y] = [light(getComputedStyle(e).color), light(behind(e))].sort((p, q) => q - p);
      return [(x + 0.05) / (y + 0.05), e.outerHTML.slice(0, 90)];
    })
    .filter(([ratio]) => ratio < 4.5);
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out(browser: Any, shown: Server, dark: bool) -> None:
    """WCAG's ratio of 4.5 for every text, in both themes."""
    browser.open(shown.url, dark=dark)
    browser.until(f"{PETS}?.querySelector('textarea')?.value")
    browser.run(f"{PETS}{RUN}.click()")
    browser.until(f"{PETS}{RESULT}")
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.run(CONTRAST) == []
    browser.run("document.getElementById('theme').click()")
    assert browser.run("document.documentElement.dataset.theme") == ("light" if dark else "dark")


def test_a_narrow_screen_is_not_wider_than_itself(browser: Any, shown: Server) -> None:
    browser.open(shown.url, width=380, height=800)
    browser.until(f"{PETS}?.querySelector('textarea')?.value")
    assert browser.run("document.documentElement.scrollWidth") <= 380


def test_a_server_that_wants_a_key(browser: Any, mlp: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    made = CliRunner().invoke(app, ["new", str(keys), "--name", "me", "--actions", "infer,read"])
    secret = made.output.split()[0]
    with Server([mlp], options=ModelConfig(device="cpu", instances=1), keys=keys) as server:
        browser.open(server.url)
        browser.until("!document.getElementById('key').hidden")
        assert browser.run("document.querySelectorAll('details.model').length") == 0
        browser.run("document.getElementById('secret').focus()")
        browser.call("Input.insertText", text=secret)
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('details.model textarea')?.value")
        browser.run("document.querySelector('details.model button[type=submit]').click()")
        assert "y FP32 [1, 10]" in browser.until("document.querySelector('details.model .result').innerText")
        assert browser.run("document.getElementById('key').hidden")


def test_a_model_comes_another_goes_a_third_is_broken(browser: Any, build: Any, tmp_path: Path) -> None:
    """The page follows the repository while it is open."""
    kind = (TensorProto.FLOAT, ["batch", 2])

    def write(name: str, operator: str) -> None:
        build(name, [(operator, ["x"], ["y"], {})], {"x": kind}, {"y": kind}, folder=tmp_path)

    write("one", "Neg")
    names = "[...document.querySelectorAll('details.model')].map((m) => m.querySelector('.name').innerText).join()"
    often = RequestLimits(poll_s=0.01)
    with Server([tmp_path], options=ModelConfig(device="cpu", instances=1), limits=often) as server:
        browser.open(server.url)
        browser.until(f"{names} === 'one'")
        write("two", "Abs")
        (tmp_path / "three.onnx").write_bytes(b"nonsense")
        browser.until(f"{names} === 'one,two,three'")
        assert "not an ONNX file" in browser.run("document.querySelectorAll('details.model')[2].textContent")
        (tmp_path / "one.onnx").unlink()
        browser.until(f"!{names}.includes('one')")
