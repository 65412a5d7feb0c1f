"""Recipes: what a recipe file defines, and recipes without a file.

Imported by ox.train and ox_cli only.
"""
