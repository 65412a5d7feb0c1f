"""Control flow and sequences: If, Loop, Scan, sequences, optionals.

Imports ox.core and ox.ops only; users take the operators from ox.ops.
"""
