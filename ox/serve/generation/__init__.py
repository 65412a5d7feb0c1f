"""Texts on the server: the generation engine, which runs many requests of one decoder at once.

Imports ox.serve, ox.generation, ox.graph and ox.devices only; nothing of ox.serve.transport."""
