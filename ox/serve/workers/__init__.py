"""Several processes that share the ports: a supervisor, which serves nothing itself, and its workers.

Imported by ox.serve only.
"""
