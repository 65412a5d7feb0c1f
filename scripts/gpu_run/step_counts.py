"""What training steps of LeNet and GPT ask of the device, beside host_cuda: `python -m gpu_run.step_counts FILE`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from gpu_run import device
from gpu_run.device_counts import counter, kept, more_than_recorded

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "cuda" / "step_counts.json"


def main() -> int:
    device.prepare()
    from training_steps import MODELS, WAYS, losses

    counting, who = counter()
    recorded = json.loads(RECORDED.read_text())
    found: dict[str, Any] = {"failed": [], "notes": [], "counted by": who, "counts": {}, "recorded": recorded}
    for make in MODELS[-1:] if device.short() else MODELS:
        for way in WAYS[:1] if device.short() else WAYS:
            name, counts = f"{make.__name__}, {way}", {}
            try:
                values = losses(make, way, kept(counting, counts))
                assert all(map(math.isfinite, values)) and values[-1] < values[0], f"the losses are {values}"
            except Exception as error:
                found["failed"].append(f"{name}: {device.one_line(error)}")
                continue
            print(f"{name}: losses {values}, {counts}")
            found["counts"][name] = counts
            if more := more_than_recorded(counts, recorded[name]):
                found["notes"].append(f"{name}: {more}")
            device.write(found)
    device.write(found)
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
