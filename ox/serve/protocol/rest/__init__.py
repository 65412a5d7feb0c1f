"""The Open Inference Protocol V2 over HTTP: paths, JSON, binary tensors.

Imports ox.serve and ox.graph.contract only; nothing of ox.serve.protocol.grpc.
"""
