// Activations and their gradients, element by element. `x` is the input, `y` the output, `g` the gradient of the output.

// Each is there for float32, and for bfloat16 with "_bfloat16" after its name: computed in float32 and rounded once.
#define KERNEL_1(name, type, load, store, x, expression)                        \
    EACH(name, i, count, const type* RESTRICT input, type* RESTRICT output) {   \
        float x = load(input[i]);                                               \
        output[i] = store(expression);                                          \
    }                                                                           \
    END
#define KERNEL_2(name, type, load, store, a, b, expression)                                                \
    EACH(name, i, count, const type* RESTRICT first, const type* RESTRICT second, type* RESTRICT output) { \
        float a = load(first[i]), b = load(second[i]);                                                     \
        output[i] = store(expression);                                                                     \
    }                                                                                                      \
    END
#define AS_IT_IS(x) x
#define UNARY(name, expression)                             \
    KERNEL_1(name, float, AS_IT_IS, AS_IT_IS, x, expression) \
    KERNEL_1(name##_bfloat16, unsigned short, from_bfloat16, to_bfloat16, x, expression)
#define GRADIENT(name, letter, expression)                             \
    KERNEL_2(name, float, AS_IT_IS, AS_IT_IS, g, letter, expression)    \
    KERNEL_2(name##_bfloat16, unsigned short, from_bfloat16, to_bfloat16, g, letter, expression)
#define BINARY(name, expression)                               \
    KERNEL_2(name, float, AS_IT_IS, AS_IT_IS, a, b, expression) \
    KERNEL_2(name##_bfloat16, unsigned short, from_bfloat16, to_bfloat16, a, b, expression)

constexpr float SQRT_2_OVER_PI = 0.79788456f;
constexpr float INVERSE_SQRT_2_PI = 0.39894228f;

FUNCTION float tanh_gelu_argument(float x) { return SQRT_2_OVER_PI * (x + 0.044715f * x * x * x); }

FUNCTION float ox_gelu(float x) {
    float a = x < 0.0f ? -x : x;
    float tail = ox_normal_tail(a, ox_exp_below(-0.5f * a * a));
    return x * (x < 0.0f ? tail : 1.0f - tail);
}

FUNCTION float gelu_slope(float x) {
    // where the normal distribution function is 0 or 1, its slope is 0: an infinite x must not meet it
    float a = x < -15.0f ? 15.0f : x > 15.0f ? 15.0f : x < 0.0f ? -x : x;
    float e = ox_exp_below(-0.5f * a * a), tail = ox_normal_tail(a, e), along = a * INVERSE_SQRT_2_PI * e;
    return x < 0.0f ? tail - along : 1.0f - tail + along;
}

FUNCTION float tanh_gelu_slope(float x) {
    float a = x < -15.0f ? -15.0f : x > 15.0f ? 15.0f : x;
    float t = ox_tanh(tanh_gelu_argument(a));
    return 0.5f * (1.0f + t) + 0.5f * a * (1.0f - t * t) * SQRT_2_OVER_PI * (1.0f + 0.134145f * a * a);
}

FUNCTION float silu_slope(float x) {
    float a = x < 0.0f ? -x : x;
    a = a > 100.0f ? 100.0f : a;  // an infinite x must not meet a slope of 0
    float e = ox_exp_below(-a), r = 1.0f / (1.0f + e), along = a * e * r * r;
    return x < 0.0f ? e * r - along : r + along;
}

UNARY(ox_exp_forward, ox_exp(x))
UNARY(ox_log_forward, ox_log(x))
UNARY(ox_erf_forward, ox_erf(x))
UNARY(ox_tanh_forward, ox_tanh(x))
UNARY(ox_sigmoid_forward, ox_sigmoid(x))
UNARY(ox_softplus_forward, ox_softplus(x))
UNARY(ox_silu_forward, x / (1.0f + ox_exp(-x)))
UNARY(ox_gelu_forward, ox_gelu(x))
UNARY(ox_tanh_gelu_forward, 0.5f * x * (1.0f + ox_tanh(tanh_gelu_argument(x))))

GRADIENT(ox_relu_backward, y, y <= 0.0f ? 0.0f : g)
GRADIENT(ox_tanh_backward, y, g * (1.0f - y * y))
GRADIENT(ox_sigmoid_backward, y, g * (y * (1.0f - y)))
GRADIENT(ox_silu_backward, x, g * silu_slope(x))
GRADIENT(ox_gelu_backward, x, g * gelu_slope(x))
GRADIENT(ox_tanh_gelu_backward, x, g * tanh_gelu_slope(x))

BINARY(ox_add, a + b)
BINARY(ox_sub, a - b)
BINARY(ox_mul, a * b)
UNARY(ox_relu_forward, x < 0.0f ? 0.0f : x)

EACH(ox_to_bfloat16, i, count, const float* RESTRICT input, unsigned short* RESTRICT output) {
    output[i] = to_bfloat16(input[i]);
} END

EACH(ox_from_bfloat16, i, count, const unsigned short* RESTRICT input, float* RESTRICT output) {
    output[i] = from_bfloat16(input[i]);
} END

// A choice by a mask of bytes that are 0 or 1: of two arrays, and of an array and a number where the mask is `when`.
EACH(ox_where, i, count, const unsigned char* RESTRICT mask, const float* RESTRICT first, const float* RESTRICT second, float* RESTRICT output) {
    float a = first[i], b = second[i];
    output[i] = mask[i] ? a : b;
} END
EACH(ox_fill, i, count, const unsigned char* RESTRICT mask, const float* RESTRICT input, float* RESTRICT output, float value, long long when) {
    float x = input[i], fill = value;
    output[i] = mask[i] == (unsigned char)when ? fill : x;
} END
