"""The command `ox`: one module per subcommand, which parses arguments, calls ox and prints.

Imports everything below inside functions, so that `ox --help` is quick. No package of ox imports it.
"""
