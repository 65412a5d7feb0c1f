// float functions of both devices. On a GPU they are CUDA's own; on a CPU polynomials without branches, which compilers
// vectorize. scripts/fit_polynomials.py prints the coefficients; tests/kernels/test_float_math.py holds the errors (in units
// of the last place: exp 1, erf 1.5, tanh 2, sigmoid 2.5, log 1) and what NaN, infinities and signed zeros become.
#pragma once

#ifdef __CUDACC_RTC__

FUNCTION float bits_to_float(int bits) { return __int_as_float(bits); }
FUNCTION int float_to_bits(float x) { return __float_as_int(x); }
FUNCTION float ox_exp(float x) { return expf(x); }
FUNCTION float ox_erf(float x) { return erff(x); }
FUNCTION float ox_tanh(float x) { return tanhf(x); }
FUNCTION float ox_exp_below(float x) { return expf(x); }
FUNCTION float ox_log(float x) { return logf(x); }
FUNCTION float ox_log1p(float x) { return log1pf(x); }
FUNCTION float ox_expm1(float x) { return expm1f(x); }

#else

FUNCTION float bits_to_float(int bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

FUNCTION int float_to_bits(float x) {
    int bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}

struct Power {
    float fraction;  // 0.7 to 1.42
    int exponent;
};

// exp(x) as fraction * 2^exponent; of NaN the fraction is NaN.
FUNCTION Power power_of(float x) {
    float n = __builtin_rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 0.00138146104f;
    p = p * r + 0.00836871006f;
    p = p * r + 0.041668389f;
    p = p * r + 0.166665211f;
    p = p * r + 0.49999994f;
    return {p * (r * r) + r + 1.0f, (int)(n == n ? n : 0.0f)};
}

FUNCTION float ox_exp(float x) {
    Power p = power_of(x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x);  // NaN stays
    int half = p.exponent >> 1;  // 2^exponent in two steps: it reaches beyond the normal numbers
    return p.fraction * bits_to_float((half + 127) << 23) * bits_to_float((p.exponent - half + 127) << 23);
}

// exp(x) of x <= 0, where 0 may stand for what is below the normal numbers.
FUNCTION float ox_exp_below(float x) {
    Power p = power_of(x < -87.0f ? -87.0f : x);
    return x < -87.0f ? 0.0f : bits_to_float(float_to_bits(p.fraction) + (p.exponent << 23));
}

FUNCTION float ox_tanh(float x) {
    float a = __builtin_fabsf(x), s = x * x;
    float p = -0.00570499059f;
    p = p * s + 0.0206390899f;
    p = p * s - 0.0537397154f;
    p = p * s + 0.133314416f;
    p = p * s - 0.333332807f;
    float small = p * (s * x) + x;
    float large = 1.0f - 2.0f / (ox_exp(2.0f * a) + 1.0f);
    return __builtin_copysignf(a < 0.625f ? small : large, x);
}

// Near 0 by 2t / (1 - t), where t is the hyperbolic tangent of half of x.
FUNCTION float ox_expm1(float x) {
    float t = ox_tanh(0.5f * x);
    float a = __builtin_fabsf(x), near = 2.0f * t / (1.0f - t);
    return a < 1.0f ? near : ox_exp(x) - 1.0f;
}

FUNCTION float ox_erf(float x) {
    float a = __builtin_fabsf(x), s = x * x;
    float p = -0.000597671547f;
    p = p * s + 0.00499044266f;
    p = p * s - 0.0267647803f;
    p = p * s + 0.112817667f;
    p = p * s - 0.376124889f;
    p = p * s + 0.128379151f;
    float small = p * x + x;
    float t = a > 4.0f ? 4.0f : a;
    float q = -5.02654621e-06f;
    q = q * t + 4.66579913e-05f;
    q = q * t + 4.40954536e-05f;
    q = q * t - 0.00291496888f;
    q = q * t + 0.022649521f;
    q = q * t - 0.105239309f;
    q = q * t - 0.635637343f;
    q = q * t - 1.1285491f;
    float large = __builtin_copysignf(1.0f - ox_exp(q * t), x);
    return a < 0.92f ? small : a != a ? x : large;
}

FUNCTION float ox_log_of(float x, float rest) {  // log(x) + rest / x, where rest is what x lost in rounding
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;  // subnormal numbers
    float below = x < 1.17549435e-38f ? -23.0f : 0.0f;
    int bits = float_to_bits(scaled) - 0x3f3504f3;  // of sqrt(0.5): the fraction lies in [sqrt(0.5), sqrt(2))
    float k = (float)(bits >> 23) + below;
    float f = bits_to_float((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
    float p = -0.0763442963f;
    p = p * f + 0.127615497f;
    p = p * f - 0.131601945f;
    p = p * f + 0.142017618f;
    p = p * f - 0.166233569f;
    p = p * f + 0.200012267f;
    p = p * f - 0.250008225f;
    p = p * f + 0.333333313f;
    float s = f * f;
    float low = p * (s * f) + (rest / x - k * 2.12194440e-4f);
    float result = low - 0.5f * s + f + k * 0.693359375f;
    result = x == 0.0f ? -__builtin_inff() : result;
    result = x < 0.0f || x != x ? __builtin_nanf("") : result;
    return x == __builtin_inff() ? x : result;
}

FUNCTION float ox_log(float x) { return ox_log_of(x, 0.0f); }

FUNCTION float ox_log1p(float x) {
    float sum = 1.0f + x;
    float large = ox_log_of(sum, x - (sum - 1.0f));
    return x == 0.0f || sum == __builtin_inff() ? x : large;  // keeps the sign of 0
}

#endif

// bfloat16 as its 16 bits. The nearest number, the even one of two; NaN keeps its sign.
FUNCTION unsigned short to_bfloat16(float x) {
    unsigned bits = (unsigned)float_to_bits(x);
    unsigned nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = (bits >> 31 << 15) | 0x7fc0;
    return (unsigned short)((bits & 0x7fffffff) > 0x7f800000 ? nan : nearest);
}

FUNCTION float from_bfloat16(unsigned short x) { return bits_to_float((int)((unsigned)x << 16)); }

FUNCTION float ox_sigmoid(float x) { return 1.0f / (1.0f + ox_exp(-x)); }

// The normal distribution function at -a, where a >= 0 and e = exp(-a² / 2), which its slope needs as well.
FUNCTION float ox_normal_tail(float a, float e) {
    float t = 1.0f / (1.0f + 0.27f * a);
    float p = 0.0289154891f;
    p = p * t - 0.126256302f;
    p = p * t + 0.169293523f;
    p = p * t - 0.068623364f;
    p = p * t + 0.107401051f;
    p = p * t + 0.072239615f;
    p = p * t + 0.101759329f;
    p = p * t + 0.107550487f;
    p = p * t + 0.107720181f;
    return t * p * e;
}

FUNCTION float ox_softplus(float x) {
    float above = x > 0.0f ? x : x == x ? 0.0f : x;
    float distance = x < 0.0f ? x : -x;
    return above + ox_log1p(ox_exp(distance));
}
