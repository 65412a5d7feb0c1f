"""Sockets, HTTP/1.1, HTTP/2 and gRPC framing: from bytes to exchanges and back. No code here depends on models.
Imports ox.serve.config, ox.serve.response_memory, ox.serve.allocator and ox.serve.protocol.grpc.wire only;
ox.serve.telemetry for annotations.
"""
