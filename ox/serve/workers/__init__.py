"""Several processes that share the ports: one supervisor, which serves nothing itself, and its workers."""
