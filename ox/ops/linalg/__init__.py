"""Products and factorizations of matrices.

Imports ox.core, ox.devices and ox.ops only; users take the operators from ox.ops.
"""
