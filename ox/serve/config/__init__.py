"""The configuration of the server and of its models, with every limit.

Imports ox.graph.contract, ox.serve.access, ox.serve.repository and ox.serve.telemetry only.
"""
