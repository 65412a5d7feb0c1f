"""Metrics, traces and logs of the server.

Imports ox.clock, ox.devices and ox.errors only; ox.serve for annotations. The other packages of ox.serve report to it.
"""
