"""Engines that run recorded graphs: `ox.compile` gives each graph to one of them, which sees a graph and arrays.

Imports ox.graph and floors below. It imports nothing of ox.nn and ox.optim."""
