"""Recurrent operators: RNN, GRU, LSTM.

Imports ox.core and ox.ops only; users take the operators from ox.ops.
"""
