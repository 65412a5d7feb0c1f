"""The models that a server has: loading, versions, reloading."""
