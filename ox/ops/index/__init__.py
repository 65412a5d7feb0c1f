"""Operators that pick, place and order elements.

Imports ox.core, ox.devices and ox.ops only; users take the operators from ox.ops.
"""
