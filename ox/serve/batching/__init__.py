"""From requests to batches and back: queues, batches, padding, sequences.

Imports ox.serve, ox.graph.contract and ox.devices only; nothing of ox.serve.transport.
"""
