"""Operators that work element by element.

Imports ox.core, ox.devices and ox.ops only; users take the operators from ox.ops.
"""
