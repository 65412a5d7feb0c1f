// Optimizers over many tensors at once; `tensors` and `plan` are the table and the plan of blocks.h.
// `factor` multiplies the gradients (unscaling, clipping, and -1 to maximize).
#include "blocks.h"

constexpr long long PART = 1024;

// Without a decay, an infinite parameter has no part in its gradient.
FUNCTION float decayed(float g, float p, float decay) { return decay == 0.0f ? g : g + decay * p; }

// `keep` multiplies the parameter (AdamW), `decay` of it joins the gradient (Adam); rest1 and rest2 are 1 - beta1 and
// 1 - beta2, which float32 would round.
ROWS(ox_adam, b, blocks, BLOCK, const long long* RESTRICT tensors, const long long* RESTRICT plan, float rate, float keep, float decay, float rest1, float beta2, float rest2, float epsilon, float factor) {
    const long long *tensor = tensors + 6 * plan[2 * b], begin = plan[2 * b + 1], end = block_end(begin, tensor[5]);
    float *RESTRICT p = (float*)tensor[0], *RESTRICT m = (float*)tensor[2], *RESTRICT v = (float*)tensor[3];
    float* RESTRICT most = (float*)tensor[4];
    const float* RESTRICT g = (const float*)tensor[1];
    if (most) {
        COLUMNS(c, end - begin) {
            long long i = begin + c;
            float value = p[i] * keep, slope = decayed(g[i] * factor, value, decay);
            float first = m[i] + (slope - m[i]) * rest1;
            float second = v[i] * beta2 + slope * slope * rest2;
            float largest = most[i] > second ? most[i] : second;
            m[i] = first;
            v[i] = second;
            most[i] = largest;
            p[i] = value - first / (sqrtf(largest) + epsilon) * rate;
        }
    } else {
        COLUMNS(c, end - begin) {
            long long i = begin + c;
            float value = p[i] * keep, slope = decayed(g[i] * factor, value, decay);
            float first = m[i] + (slope - m[i]) * rest1;
            float second = v[i] * beta2 + slope * slope * rest2;
            m[i] = first;
            v[i] = second;
            p[i] = value - first / (sqrtf(second) + epsilon) * rate;
        }
    }
} END

// Stochastic gradient descent; without a momentum, the third address is 0.
ROWS(ox_sgd, b, blocks, BLOCK, const long long* RESTRICT tensors, const long long* RESTRICT plan, float rate, float decay, float momentum, float keep, float factor, long long nesterov) {
    const long long *tensor = tensors + 4 * plan[2 * b], begin = plan[2 * b + 1], end = block_end(begin, tensor[3]);
    float *RESTRICT p = (float*)tensor[0], *RESTRICT buffer = (float*)tensor[2];
    const float* RESTRICT g = (const float*)tensor[1];
    if (buffer) {
        COLUMNS(c, end - begin) {
            long long i = begin + c;
            float slope = decayed(g[i] * factor, p[i], decay);
            float velocity = buffer[i] * momentum + slope * keep;
            buffer[i] = velocity;
            p[i] -= rate * (nesterov ? slope + velocity * momentum : velocity);
        }
    } else {
        COLUMNS(c, end - begin) {
            long long i = begin + c;
            p[i] -= rate * decayed(g[i] * factor, p[i], decay);
        }
    }
} END

// Tensors (lines of an address and a number of elements) times a factor, in place; `found` is 1 for each block that held
// an infinity or NaN before, else 0.
ROWS(ox_scale, b, blocks, BLOCK, const long long* RESTRICT tensors, const long long* RESTRICT plan, float* RESTRICT found, float factor) {
    const long long *tensor = tensors + 2 * plan[2 * b], begin = plan[2 * b + 1], size = block_end(begin, tensor[1]) - begin;
    float* RESTRICT x = (float*)tensor[0] + begin;
    found[b] = MAX(c, size, x[c] - x[c] == 0.0f ? 0.0f : 1.0f);
    COLUMNS(c, size) x[c] *= factor;
} END

// The sum of the squares of each block, of parts that float32 adds up exactly enough.
ROWS(ox_square_sums, b, blocks, BLOCK, const long long* RESTRICT tensors, const long long* RESTRICT plan, double* RESTRICT sums) {
    const long long *tensor = tensors + 2 * plan[2 * b], begin = plan[2 * b + 1], size = block_end(begin, tensor[1]) - begin;
    double sum = 0.0;
    for (long long first = 0; first < size; first += PART) {
        const float* RESTRICT x = (const float*)tensor[0] + begin + first;
        const long long some = size - first < PART ? size - first : PART;
        sum += SUM(c, some, x[c] * x[c]);
    }
    sums[b] = sum;
} END
