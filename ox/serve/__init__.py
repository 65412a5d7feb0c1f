"""Serves ONNX files over HTTP: Open Inference Protocol V2, proven dynamic batching, limits on everything it reads.

ox.serve.serve(["model.onnx"], port=8000)          # blocks until Ctrl-C, then drains
with ox.serve.Server(["model.onnx"]) as server:    # in a thread of its own, for tests and notebooks
    print(server.url)
"""

from __future__ import annotations

from ox.serve.limits import Limits
from ox.serve.options import Options
from ox.serve.run import serve
from ox.serve.server import Server
from ox.serve.settings import Settings

__all__ = ["Limits", "Options", "Server", "Settings", "serve"]
