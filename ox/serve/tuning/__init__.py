"""Measuring how a model runs best on this machine.

Imported by ox.serve and ox_cli only.
"""
