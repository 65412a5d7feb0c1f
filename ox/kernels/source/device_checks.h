// A record of the first wrong value that a kernel met: which check, and the value. The host reads it when it waits.
#pragma once

FUNCTION void report(long long* record, long long check, long long value) {
    if (atomicCAS((unsigned long long*)record, 0ull, (unsigned long long)check) == 0ull) record[1] = value;
}
