"""Serves ONNX files over HTTP and gRPC: Open Inference Protocol V2, safe dynamic batching, limits on all requests.

ox.serve.serve(["model.onnx"], port=8000)          # blocks until Ctrl-C
with ox.serve.Server(["model.onnx"]) as server:    # in a thread, for tests and notebooks
    print(server.url)
"""

from __future__ import annotations

from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.config.server_config import ServerConfig
from ox.serve.run import serve
from ox.serve.server import Server

__all__ = ["ModelConfig", "RequestLimits", "Server", "ServerConfig", "serve"]
