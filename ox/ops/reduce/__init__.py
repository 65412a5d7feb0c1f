"""Operators over axes: reductions and running totals.

Imports ox.core, ox.devices and ox.ops only; users take the operators from ox.ops.
"""
