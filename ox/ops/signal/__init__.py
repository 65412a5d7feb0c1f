"""Operators on signals: Fourier transforms and windows.

Imports ox.core and ox.ops only; users take the operators from ox.ops.
"""
