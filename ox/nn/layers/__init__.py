"""The layers, by kind; users import them from ox.nn.

Imports ox.nn.base, ox.nn.functional, ox.nn.init, ox.nn.parameter, ox.nn.utils and floors below.
"""
