"""Recipes: what a recipe file defines, and recipes without a file.

Imported by ox.train, ox.ray and ox_cli only.
"""
