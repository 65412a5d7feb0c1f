"""The command `ox`: one module per subcommand, which parses arguments, calls ox and prints.

Imports floors below; the module of a command is imported when it runs, so that `ox --help` is quick.
"""
