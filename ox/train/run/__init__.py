"""A run: its folder, its checkpoints, its loop over epochs.

Imported by ox.train and ox_cli only.
"""
