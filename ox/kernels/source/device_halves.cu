// The kernels of pointwise.cu for float16, under the names that they have there for bfloat16.
#include "device_numbers.h"
#define to_bfloat16 to_half
#define from_bfloat16 from_half
#include "pointwise.cu"
