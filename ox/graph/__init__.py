"""Recorded graphs: the intermediate representation, replay, and the contract inside an ONNX file.

Imports ox.autograd, ox.tensors, ox.random, ox.ops, ox.core and ox.devices only; ox.graph.ir imports none of ox.tensors.
"""
