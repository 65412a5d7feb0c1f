"""ONNX Runtime in a browser: serves a page to a headless Chromium, and waits for what the page posts."""

import json
import os
import shutil
import subprocess
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import numpy as np
from runner import Feed, Loaded, main
from tensors_as_json import from_json, to_json

PACKAGE = Path(os.environ["EMBED_NPM"]) / "node_modules" / "onnxruntime-web"
posted: dict[str, bytes] = {}
done = Event()


class Handler(SimpleHTTPRequestHandler):
    """A static server that also takes what the page posts."""

    def do_POST(self) -> None:
        posted[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        done.set()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    folder = Path(path).parent
    shutil.copy(Path(__file__).with_suffix(".html"), folder / "index.html")
    (folder / "inputs.json").write_text(json.dumps(to_json(feed)))
    if not (folder / "onnxruntime-web").exists():
        (folder / "onnxruntime-web").symlink_to(PACKAGE / "dist")
    return lambda feed: run(folder)


def run(folder: Path) -> list[np.ndarray]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        words = [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
            "--remote-debugging-port=0", f"http://127.0.0.1:{server.server_port}/index.html",
        ]  # fmt: skip
        browser = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if not done.wait(100):
                raise TimeoutError("the page did not end")
        finally:
            browser.terminate()
            browser.wait(60)
            server.shutdown()
    if "/failed" in posted:
        raise RuntimeError(posted["/failed"].decode())
    return from_json(json.loads(posted["/outputs"]))


main(json.loads((PACKAGE / "package.json").read_text())["version"], load)
