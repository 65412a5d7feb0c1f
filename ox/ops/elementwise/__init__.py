"""Operators that work element by element.

Imports ox.core and ox.ops only; users take the operators from ox.ops.
"""
