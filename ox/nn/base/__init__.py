"""Module and its parts: parameters, hooks, state.

Imports ox.nn.parameter and floors below; the layers are built on it, never the other way.
"""
