// The words of the kernels' language on a CPU; cuda.h has the same for a GPU.
#pragma once
#include <math.h>

#include "pool.h"
#include "words.h"
