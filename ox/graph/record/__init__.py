"""Recording: every operator call becomes a node.

Imports ox.graph, ox.autograd, ox.core and ox.devices only.
"""
