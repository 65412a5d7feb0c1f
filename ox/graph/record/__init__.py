"""Recording: every operator call becomes a node.

Imports ox.graph, ox.autograd, ox.random, ox.core and ox.devices only; ox.tensors for annotations.
"""
