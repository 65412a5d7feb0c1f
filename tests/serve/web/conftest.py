"""A headless Chromium, driven over the DevTools protocol through a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
]  # fmt: skip
# Chromium reads commands from descriptor 3 and answers on 4.
BECOME = "import os, sys; _, r, w, *rest = sys.argv; os.dup2(int(r), 3); os.dup2(int(w), 4); os.execvp(rest[0], rest)"


class Page:
    """One tab. `problems` collects what a developer's console would show in red: errors, and refusals by the policy."""

    def __init__(self, program: str, profile: Path) -> None:
        (theirs, ours), (back, forth) = os.pipe(), os.pipe()
        command = [sys.executable, "-c", BECOME, str(theirs), str(forth), program, *FLAGS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(command, pass_fds=(theirs, forth), stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(forth)
        self._out, self._in = os.fdopen(ours, "wb", 0), os.fdopen(back, "rb", 0)
        self._buffer, self._number, self._session = b"", 0, ""
        self.problems: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol, and what it gives."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = self._in.read(1 << 16)
            assert data, "Chromium has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        method, what = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(what["exceptionDetails"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.problems.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> Any:
        """The first true value of an expression."""
        try:
            return wait_until(lambda: self.run(script))
        except AssertionError as error:
            shown = self.run("document.body.innerText")
            raise AssertionError(f"never true: {script}\n{self.problems}\n{shown}") from error

    def open(self, url: str, width: int = 1180, height: int = 1100, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.problems.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key of the keyboard."""
        for kind in ("keyDown", "keyUp"):
            said = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **said)

    def attach(self, selector: str, path: Path) -> None:
        """Gives a file to an input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def picture(self, path: Path) -> Path:
        """A screenshot of the whole page."""
        shown = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shown["data"]))
        return path

    def close(self) -> None:
        self._out.close()
        self._in.close()
        self._process.terminate()
        self._process.wait(120)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium here")
    page = Page(program, tmp_path_factory.mktemp("profile"))
    yield page
    page.close()
