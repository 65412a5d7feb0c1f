"""The Open Inference Protocol V2 over gRPC: messages, calls, and two transports that carry them.

Imports ox.serve and ox.graph.contract only; nothing of ox.serve.protocol.rest.
"""
