"""The data plane of HTTP/2: bytes of a socket to streams and back. It knows nothing of inference or gRPC."""
