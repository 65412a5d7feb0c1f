"""ONNX Runtime in node: hands a script of the same name the inputs as JSON."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
from runner import Feed, Loaded, main
from tensors_as_json import from_json, to_json

NPM = Path(os.environ["EMBED_NPM"])


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    def run(feed: Feed) -> list[np.ndarray]:
        script = Path(__file__).with_suffix(".mjs")
        words = ["node", str(script), str(NPM / "node_modules" / "onnxruntime-node"), path]
        done = subprocess.run(words, input=json.dumps(to_json(feed)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(next((line for line in done.stderr.splitlines() if "Error" in line), done.stderr[-300:]))
        return from_json(json.loads(done.stdout))

    return run


package = json.loads((NPM / "node_modules" / "onnxruntime-node" / "package.json").read_text())
main(package["version"], load)
