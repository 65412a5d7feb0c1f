"""`python -m ox_cli` is `ox`."""

import sys

from ox_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
