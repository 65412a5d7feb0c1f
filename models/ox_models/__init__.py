"""Recipes that come with ox, one module each, and their data: `ox train NAME`.

Imports floors below, by the paths that a user's recipe file would use.
"""
