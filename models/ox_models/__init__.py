"""Recipes that come with ox, one module each, and their data: `ox train NAME`.

Imports the public packages of ox, as a user's recipe file would.
"""
