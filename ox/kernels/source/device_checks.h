// A record of the first wrong value that a kernel met: which check, the value, and whether a thread writes these. The host
// reads it when it waits, for one stream: a kernel of another one may be writing. Whoever reads the check also reads the
// value that belongs to it.
#pragma once

FUNCTION void report(long long* record, long long check, long long value) {
    if (atomicCAS((unsigned long long*)record + 2, 0ull, 1ull) != 0ull) return;
    record[1] = value;
    __threadfence_system();
    ((volatile long long*)record)[0] = check;
}
