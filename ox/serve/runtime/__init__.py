"""ONNX Runtime behind the server: sessions, and the proof that requests may share a batch.

Imports ox.serve, ox.graph and ox.devices only. No other package of the server imports onnx.
"""
