"""Graphs as ONNX files.

Imports ox.graph and ox.core only.
"""
