"""The server's web page, and the paths that only this page requests.

Imported by ox.serve only.
"""
