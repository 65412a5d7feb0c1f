"""Finding what made a step fail: bad samples, values that are not finite.

Imported by ox.train only.
"""
