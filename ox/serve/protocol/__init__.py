"""The Open Inference Protocol V2: its rules, and its REST and gRPC forms.

Imports ox.serve, ox.graph.contract, ox.generation and ox.devices only. ox.serve.transport calls it without knowing it.
"""
