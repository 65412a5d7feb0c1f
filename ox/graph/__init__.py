"""What was recorded: its form, its passes, its replay, and the contract that travels inside a file."""
