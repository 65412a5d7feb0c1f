"""Engines that run recorded graphs: `ox.compile` gives each graph to one of them.

Imports ox.graph and packages below it: an engine sees a graph and arrays, no layers and no optimizers.
"""
