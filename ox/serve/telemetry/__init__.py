"""Metrics, traces and logs of the server, to which the other packages of ox.serve report. Imports ox.clock, ox.devices,
ox.errors and ox.installation only; ox.serve for annotations.
"""
