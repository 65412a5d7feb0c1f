"""The store as a process of its own, for ranks that `ox launch` did not start. Rank 0 runs this file by its path.

The modules that it imports need nothing of ox, so ox itself is not imported: the store starts in a tenth of a second.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":
    here = Path(__file__).parent
    for name, folder in (("ox", here.parent), ("ox.distributed", here)):
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = [str(folder)]

    from ox.distributed.store import main

    main(int(sys.argv[1]), int(sys.argv[2]))
