"""Random numbers.

Imports ox.core and ox.ops only; users take the operators from ox.ops.
"""
