"""The Open Inference Protocol V2 over gRPC: messages, calls, and two transports that carry them."""
