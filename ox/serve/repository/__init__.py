"""The models of a server: loading, versions, reloading.

Imported by ox.serve only. `Model` puts a session, its proofs and its batcher together.
"""
