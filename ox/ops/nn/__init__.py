"""Operators of neural networks: convolution, pooling, normalization, attention, losses.

Imports ox.core, ox.devices and ox.ops only; users take the operators from ox.ops.
"""
