"""The scoreboard of PyTorch's own sample inputs: in how many operations ox agrees with PyTorch on all of them.

python tests/parity/opinfo_score.py             a line an operation that differs, then the totals (6 minutes)
python tests/parity/opinfo_score.py add matmul  all that differs in some operations
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import opinfo  # noqa: E402


def main(names: list[str]) -> int:
    opinfo.torch.set_num_threads(1)
    began, chosen = time.perf_counter(), opinfo.operations()
    chosen = {n: op for n, op in chosen.items() if not names or n in names or op.name in names}
    agree = unexplained = refused = refusals = samples = 0
    for name, op in chosen.items():
        failures = {each: texts for each, texts in opinfo.check(op).items() if texts}
        known = opinfo.exceptions().get(name, {})
        agree += not failures
        for each, texts in failures.items():
            why = opinfo.expected(each, known)
            unexplained += not why
            for text in texts if names else texts[:1]:
                print(f"{name:<40} {each:<18} {len(texts):>5} {why or 'NO REASON'} | {' '.join(text.split())[:300]}")
        for given, told in opinfo.errors(op):
            refusals += 1
            refused += told is None
            if told and names:
                print(f"{name:<40} refusal: {told} | {given}")
    samples = sum(opinfo.COUNT.values())
    print(f"\n{agree} of {len(chosen)} operations agree on all samples ({agree / max(len(chosen), 1):.1%});")
    print(f"{samples:,} samples compared; {unexplained} checks differ without a reason;")
    print(f"{len(opinfo.missing())} operations of the database are not there;")
    print(f"{refused} of {refusals} inputs that PyTorch refuses are refused; {time.perf_counter() - began:.0f} s")
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
