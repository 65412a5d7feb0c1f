"""A run: its folder, its checkpoints, its loop over epochs.

Imported by ox.train, ox.ray and ox_cli only.
"""
