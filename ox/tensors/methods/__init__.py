"""Tensor's methods, by kind.

Imported by ox.tensors and ox.nn.base only.
"""
