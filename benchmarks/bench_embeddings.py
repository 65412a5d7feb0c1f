"""Texts a second of /v1/embeddings, beside sentence-transformers behind FastAPI.

    python benchmarks/bench_embeddings.py PYTHON

PYTHON is an interpreter with sentence-transformers, fastapi and uvicorn. Both servers read one folder, with the weights
of a random encoder of MiniLM's size (6 layers of width 384), and answer with the same vectors, which is checked first.
The clients send verses in turns of four seconds; client and server share the cores.
"""

from __future__ import annotations

import base64
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import ox
from ox import nn
from ox.serve.transport.sockets import bind
from ox_models.bert import BertConfig, BertModel
from ox_models.kjv_data import chapters, word_pieces

PEER = Path(__file__).parent / "peers" / "embeddings_fastapi.py"
SIZES = BertConfig(3000, 384, 6, 12, 1536, max_position_embeddings=128)
LOADS = {"1 client, 1 text a request": (1, 1), "16 clients, 1 text": (16, 1), "4 clients, 32 texts": (4, 32)}
TURNS, SECONDS = 5, 4.0
TEXTS = [verse for chapter in chapters() for verse in chapter.verses]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bert = BertModel(SIZES)

    def forward(self, input_ids: ox.Tensor, attention_mask: ox.Tensor) -> ox.Tensor:
        return self.bert(input_ids, attention_mask)[0]


def write(folder: Path) -> None:
    """The folder, for both servers."""
    ox.manual_seed(0)
    encoder, pieces = Encoder().eval(), folder.with_suffix(".json")
    word_pieces().save(str(pieces))
    ids = np.random.default_rng(0).integers(5, 3000, (16, 64))
    ox.export.save_encoder(
        encoder, folder, (ids, np.ones_like(ids)), tokenizer=pieces, pooling="mean", normalize=True, max_length=128,
        optimize="inference",
    )  # fmt: skip
    weights = {name: value.numpy() for name, value in encoder.bert.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = {name: getattr(SIZES, name) for name in (*names, "max_position_embeddings")}
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"], **config}))
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 128, **marks}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "2_Normalize").mkdir()


def embed(connection: HTTPConnection, texts: list[str]) -> list[np.ndarray[Any, Any]]:
    body = json.dumps({"model": "encoder", "input": texts, "encoding_format": "base64"})
    connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
    reply = connection.getresponse()
    content = reply.read()
    assert reply.status == 200, content
    return [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in json.loads(content)["data"]]


def rate(port: int, clients: int, count: int) -> float:
    """Texts a second."""
    done, end = [0] * clients, time.perf_counter() + SECONDS

    def work(index: int) -> None:
        connection, at = HTTPConnection("127.0.0.1", port), 997 * index
        while time.perf_counter() < end:
            embed(connection, [TEXTS[(at + i) % len(TEXTS)][:400] for i in range(count)])
            done[index], at = done[index] + count, at + count

    threads = [threading.Thread(target=work, args=(index,)) for index in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / SECONDS


def started(command: list[str], port: int) -> subprocess.Popen[bytes]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(240):
        time.sleep(0.5)
        try:
            embed(HTTPConnection("127.0.0.1", port), ["Selah."])
            return server
        except (OSError, AssertionError):
            assert server.poll() is None, f"{command[0]} has ended"
    raise AssertionError(f"{command[0]} does not answer")


def free_port() -> int:
    (sock, *others) = bind("127.0.0.1", 0, share=False)
    port = int(sock.getsockname()[1])
    for each in (sock, *others):
        each.close()
    return port


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "encoder"
        write(folder)
        ports = {"sentence-transformers": free_port(), "ox": free_port()}
        commands = {
            "sentence-transformers": [sys.argv[1], str(PEER), str(folder), str(ports["sentence-transformers"])],
            "ox": [sys.executable, "-m", "ox_cli", "serve", str(folder), "--device", "cpu", "--port", str(ports["ox"])],
        }
        servers = [started(command, ports[name]) for name, command in commands.items()]
        try:
            one, two = (embed(HTTPConnection("127.0.0.1", port), TEXTS[:8]) for port in ports.values())
            print(f"largest difference of the vectors: {np.abs(np.array(one) - np.array(two)).max():.1e}")
            for load, (clients, count) in LOADS.items():
                turns = [[rate(port, clients, count) for port in ports.values()] for _ in range(TURNS)]
                medians = [statistics.median(side) for side in zip(*turns, strict=True)]
                ratio = statistics.median(ours / theirs for theirs, ours in turns)
                said = ", ".join(f"{name} {value:.0f}" for name, value in zip(ports, medians, strict=True))
                print(f"{load:<28} {said} texts/s, ratio {ratio:.2f} (median of {TURNS} turns)")
        finally:
            for server in servers:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
