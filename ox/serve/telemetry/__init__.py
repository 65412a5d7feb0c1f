"""Metrics, traces and logs of the server.

Imports ox.errors only; the other packages of ox.serve report to it.
"""
