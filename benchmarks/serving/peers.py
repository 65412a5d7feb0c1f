"""Who is compared, how each is started, and in which form it wants its requests."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ox.bench.address import parse
from ox.bench.model import Model, Tensor
from ox.bench.request import INFER, build

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "benchmarks" / "peers"
OX = "ox"


@dataclass(frozen=True)
class Request:
    """What a load generator sends: for gRPC the framed message, else the body."""

    path: str
    body: bytes
    headers: dict[str, str]
    form: str

    def answer(self, body: bytes) -> np.ndarray[Any, Any]:
        """The y of an answer."""
        if self.form == "raw":
            return np.frombuffer(body, np.float32)
        document = json.loads(body[: body.rindex(b"}") + 1] if self.form == "binary" else body)
        if self.form == "binary":
            return np.frombuffer(body[-4 * 10 :], np.float32)
        data = document["y"] if self.form in ("list", "base64") else document["outputs"][0]["data"]
        return np.asarray(data, np.float32)


@dataclass(frozen=True)
class Peer:
    """A server. `forms` says for each kind of request (json, binary, grpc) in which form the peer takes it."""

    name: str
    shown: str
    forms: dict[str, str]
    env: str | None = None  # the folder of its environment, which several may share; None: this one
    scales: bool = True  # whether it can use a second core for a model
    flags: tuple[str, ...] = field(default=())
    tree: Path = ROOT  # the checkout that ox is run from

    @property
    def pins(self) -> Path:
        return SCRIPTS / f"{self.env}.txt"

    def command(self, envs: Path, model: Path, port: int, threads: int) -> list[str]:
        if self.env is None:
            line = [sys.executable, "-m", "ox_cli", "serve", str(model), "--port", str(port), "--device", "cpu"]
            return [*line, "--instances", str(threads), *self.flags]
        python = envs / self.env / "bin" / "python"
        return [str(python), str(SCRIPTS / f"{self.name}_server.py"), str(model), str(port), str(threads)]

    def grpc_port(self, port: int) -> int:
        return port if self.env is None else port + 1


V2 = {"json": "v2", "binary": "binary"}
PEERS = {
    peer.name: peer
    for peer in (
        Peer(OX, "ox serve", {**V2, "grpc": "grpc"}),
        Peer("mosec", "mosec 0.9.8", {"binary": "raw"}, "mosec"),
        Peer("tritonserver", "tritonserver 2.51, Python backend", {**V2, "grpc": "grpc"}, "pytriton"),
        Peer("pytriton", "PyTriton 0.7.0", {**V2, "grpc": "grpc"}, "pytriton"),
        Peer("fastapi", "FastAPI 0.163, by hand", {"binary": "raw"}, "fastapi"),
        Peer("mlserver", "MLServer 1.7.1", {"json": "v2", "grpc": "grpc"}, "mlserver"),
        Peer("litserve", "LitServe 0.2.19", {"json": "list", "binary": "base64"}, "litserve"),
        Peer("grpcaio", "grpc.aio 1.85, by hand", {"grpc": "grpc"}, "grpcaio", scales=False),
    )
}


# Servers that belong here and come in no package: each is named beneath the tables, with the reason.
UNPACKAGED = (
    "OpenVINO Model Server: no wheel and no Debian package has it, only a container and archives",
    "Triton's ONNX Runtime backend: PyTriton's wheel has tritonserver with the Python backend only, the rest of Triton "
    "comes in a container",
)


def request(form: str, model: str, x: np.ndarray[Any, Any], port: int) -> Request:
    json_type = {"content-type": "application/json"}
    if form == "raw":
        return Request("/infer", x.tobytes(), {"content-type": "application/octet-stream"}, form)
    if form == "list":
        return Request("/predict", json.dumps({"x": x[0].tolist()}).encode(), json_type, form)
    if form == "base64":
        text = base64.b64encode(x.tobytes()).decode()
        return Request("/predict", json.dumps({"b64": text}).encode(), json_type, form)
    described = Model(model, (Tensor("x", "FP32", (-1, *x.shape[1:])),), (Tensor("y", "FP32", (-1, 10)),))
    scheme = "grpc" if form == "grpc" else "http"
    made = build(parse(f"{scheme}://127.0.0.1:{port}"), described, {"x": x}, form == "binary")
    if form == "grpc":
        return Request(INFER, made, {"content-type": "application/grpc", "te": "trailers"}, form)
    head, _, body = made.partition(b"\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    headers = {name: lines[name] for name in lines if name.startswith(("content-type", "inference"))}
    return Request(f"/v2/models/{model}/infer", body, headers, form)


def install(peer: Peer, envs: Path) -> str | None:
    """Makes the peer's environment, once; says why there is none."""
    if peer.env is None:
        return None
    folder = envs / peer.env
    done = folder / ".installed"
    pins = peer.pins.read_text()
    if done.exists() and done.read_text() == pins:
        return None
    print(f"installing {peer.env} into {folder}", flush=True)
    try:
        venv.create(folder, with_pip=True)
        line = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(peer.pins)]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    except subprocess.CalledProcessError as error:
        return f"its packages do not install: {(error.stderr or str(error)).strip().splitlines()[-1][:200]}"
    done.write_text(pins)
    return None


def environment(tree: Path = ROOT) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(str(tree / part) for part in ("", "cli", "models"))}
