"""What training steps of LeNet, GPT (which has dropout) and an LSTM ask of the device, beside host_cuda, in their own
processes: `python -m gpu_run.step_counts FILE`."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

from gpu_run import device, parts
from gpu_run.device_counts import Counting, counter, kept, more_than_recorded

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "cuda" / "step_counts.json"


def step(make: Any, way: str, counting: Counting | None) -> dict[str, int]:
    from training_steps import losses

    counts: dict[str, int] = {}
    values = losses(make, way, kept(counting, counts))
    assert all(map(math.isfinite, values)) and values[-1] < values[0], f"the losses are {values}"
    return counts


def steps(counting: Counting | None) -> dict[str, parts.Part]:
    from training_steps import MODELS, WAYS

    return {f"{make.__name__}, {way}": partial(step, make, way, counting) for make in MODELS for way in WAYS}


def answer() -> int:
    device.prepare()
    counting, who = counter()
    return parts.answer({"counted by": lambda: who, **steps(counting)})


def main() -> int:
    if parts.ONLY in sys.argv:
        return answer()
    recorded = json.loads(RECORDED.read_text())
    names = [name for name in steps(None) if name == "gpt, eager" or not device.short()]
    file = Path(sys.argv[1])
    result = parts.run("gpu_run.step_counts", ["counted by", *names], file.with_suffix(".log"))
    counts = result.get("found", {})
    who = counts.pop("counted by", "nothing")
    more = {name: more_than_recorded(found, recorded[name]) for name, found in counts.items()}
    notes = [f"{name}: {text}" for name, text in more.items() if text]
    found = {"failed": result.get("failed", []), "notes": notes, "counted by": who, "counts": counts}
    device.write({**found, "recorded": recorded})
    return 1 if found["failed"] or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
