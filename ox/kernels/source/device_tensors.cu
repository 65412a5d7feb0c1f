// Many tensors of a GPU at once: a column of the grid works on each. A line of the table is an address, an element type
// (device_numbers.h) and a number of elements.
#include "device_checks.h"
#include "device_numbers.h"

constexpr int LINE = 3;

// Divides by `scale`; `found` becomes 1 where there is an infinity or NaN before, and stays what it is elsewhere.
extern "C" __global__ void ox_unscale_tensors(const long long* table, const float* scale, float* found) {
    const long long* line = table + LINE * (long long)blockIdx.x;
    const int kind = (int)line[1];
    const float factor = (float)(1.0 / (double)*scale);
    TENSOR_ELEMENTS(i, line[2]) {
        if (kind == FLOAT64) {
            double x = load_number<double>(line[0], kind, i);
            if (!(x - x == 0.0)) *found = 1.0f;
            store_number(line[0], kind, i, x * (double)factor);
        } else {
            float x = load_number<float>(line[0], kind, i);
            if (!(x - x == 0.0f)) *found = 1.0f;
            store_number(line[0], kind, i, x * factor);
        }
    }
}

// Multiplies by *factor, unless that is 1.
extern "C" __global__ void ox_multiply_tensors(const long long* table, const double* factor) {
    const long long* line = table + LINE * (long long)blockIdx.x;
    const int kind = (int)line[1];
    const double number = *factor;
    if (number == 1.0) return;
    TENSOR_ELEMENTS(i, line[2]) {
        if (kind == FLOAT64) store_number(line[0], kind, i, load_number<double>(line[0], kind, i) * number);
        else store_number(line[0], kind, i, load_number<float>(line[0], kind, i) * (float)number);
    }
}

// The sum over a block of what each thread has, in the order of the threads: the same bits in each run. For thread 0.
FUNCTION double sum_of_block(double part) {
    __shared__ double parts[32];
    for (int distance = 16; distance; distance >>= 1) part += __shfl_down_sync(~0u, part, distance);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    double sum = 0.0;
    for (int w = 0; w < blockDim.x / 32; w++) sum += parts[w];
    return sum;
}

// The sum of squares of what a block works on.
extern "C" __global__ void ox_square_sums_of_tensors(const long long* table, double* sums) {
    const long long* line = table + LINE * (long long)blockIdx.x;
    const int kind = (int)line[1];
    double sum = 0.0;
    TENSOR_ELEMENTS(i, line[2]) {
        double x = load_number<double>(line[0], kind, i);
        sum += x * x;
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) sums[blockIdx.x * (long long)gridDim.y + blockIdx.y] = sum;
}

// One block: the root of the sum of `count` sums, as a number of the type `kind`.
extern "C" __global__ void ox_norm_of_sums(const double* sums, long long count, long long norm, long long kind) {
    double sum = 0.0;
    for (long long k = threadIdx.x; k < count; k += blockDim.x) sum += sums[k];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) store_number(norm, (int)kind, 0, sqrt(sum));
}

// One thread: by what gradients of this norm are multiplied.
extern "C" __global__ void ox_clip_factor(long long norm, long long kind, double most, double* factor) {
    double quotient = most / (load_number<double>(norm, (int)kind, 0) + 1e-6);
    *factor = quotient > 1.0 ? 1.0 : quotient;
}

// Reports so many steps of a GradScaler that were skipped in a row as `most`, at a scale below `least`.
FUNCTION void report_collapse(float scale, long long skipped, double least, long long most, long long* record, long long check) {
    if (skipped >= most && scale < least) report(record, check, skipped);
}

// One thread: the same of numbers that another kernel has updated.
extern "C" __global__ void ox_check_scale(const float* scale, const long long* skipped, double least, long long most, long long* record, long long check) {
    report_collapse(*scale, *skipped, least, most, record, check);
}

// One thread: the scale of a GradScaler, its count of good steps and that of skipped ones, after an iteration.
extern "C" __global__ void ox_update_scale(float* scale, long long* tracker, long long* skipped, const float* found, double growth, double backoff, long long interval, double least, long long most, long long* record, long long check) {
    if (*found != 0.0f) {
        *scale = (float)((double)*scale * backoff);
        *tracker = 0;
        *skipped += 1;
        report_collapse(*scale, *skipped, least, most, record, check);
        return;
    }
    *skipped = 0;
    *tracker += 1;
    if (*tracker == interval) {
        float grown = (float)((double)*scale * growth);
        if (grown - grown == 0.0f) *scale = grown;
        *tracker = 0;
    }
}
