"""Passes over a recorded graph. Each keeps what the graph computes.

Imports ox.graph, ox.autograd and ox.core only.
"""
