"""A number that processes share."""

from __future__ import annotations

import os
import subprocess
import sys

from ox.serve.workers.shared_number import SharedNumber

OTHER = """
import sys
from ox.serve.workers.shared_number import SharedNumber
number = SharedNumber(int(sys.argv[1]))
print(number.value)
number.value = 1 << 40
"""


def test_another_process_sees_a_number_at_once() -> None:
    number = SharedNumber()
    assert number.value == 0
    number.value = 7
    command = [sys.executable, "-c", OTHER, str(number.descriptor)]
    other = subprocess.run(command, pass_fds=[number.descriptor], capture_output=True, text=True, check=True)
    assert other.stdout == "7\n" and number.value == 1 << 40
    again = SharedNumber(os.dup(number.descriptor))
    number.close()
    assert again.value == 1 << 40
    again.close()
