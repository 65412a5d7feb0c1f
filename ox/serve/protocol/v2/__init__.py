"""The Open Inference Protocol V2, independent of the transport: requests, signatures, results, errors.

Imports ox.serve, ox.graph.contract and ox.devices only; nothing of ox.serve.protocol.rest or ox.serve.protocol.grpc.
"""
