"""Operators that pick, place and order elements.

Imports ox.core and ox.ops only; users take the operators from ox.ops.
"""
