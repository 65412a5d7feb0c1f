"""Recorded graphs: the intermediate representation, replay, and the contract inside an ONNX file.

Imports ox.autograd, ox.tensors, ox.core and ox.devices only. Its plain data (`ir`, `contract`) imports no tensors.
"""
