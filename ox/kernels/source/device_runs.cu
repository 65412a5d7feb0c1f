// Runs of UNIT from one place to another. A line of the table has the addresses of the source and of the target, the
// number of runs, the units of a run, and how many units runs lie apart, in the source and in the target. Each line belongs to
// a column of the grid. With `exchange`, sources become what targets were.
extern "C" __global__ void ox_device_copy_runs(const long long* RESTRICT table, long long exchange) {
    const long long* line = table + 6 * (long long)blockIdx.x;
    UNIT* source = (UNIT*)line[0];
    UNIT* target = (UNIT*)line[1];
    const long long units = line[3], from = line[4], to = line[5];
    for (long long run = 0; run < line[2]; run++)
        for (long long i = blockIdx.y * (long long)blockDim.x + threadIdx.x; i < units; i += (long long)gridDim.y * blockDim.x) {
            const UNIT value = source[run * from + i];
            if (exchange) source[run * from + i] = target[run * to + i];
            target[run * to + i] = value;
        }
}
