"""Recurrent operators: RNN, GRU, LSTM.

Imports ox.core, ox.devices, ox.kernels and ox.ops only; users take the operators from ox.ops.
"""
