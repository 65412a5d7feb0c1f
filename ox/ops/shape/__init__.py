"""Operators that change shapes, layouts and element types.

Imports ox.core and ox.ops only; users take the operators from ox.ops.
"""
