"""Records a call of `ox.compile` while it runs, with what it depends on (guards) and why it stays eager (graph breaks).
Imports ox.compiler and floors below."""
