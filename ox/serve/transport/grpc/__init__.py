"""gRPC calls over HTTP/2: ox's own framing, or grpcio.

Imports ox.serve.transport, ox.serve.config, ox.serve.response_memory and ox.serve.protocol.grpc.wire only.
"""
