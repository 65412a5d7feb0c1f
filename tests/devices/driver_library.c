/* libcuda.so.1 and libnvidia-ml.so.1 with NVIDIA's own argument types, as far as ox calls them: two devices, of which the
 * second is a MIG slice, which does not tell its load. INIT is what the first call returns. */
#include <stdio.h>

typedef int CUdevice;
typedef struct { int index; } *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;

int cuInit(unsigned int flags) { return flags == 0 ? INIT : 1; }
int cuDriverGetVersion(int *version) { *version = 13020; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal + 40; return 0; }
int cuDeviceGetName(char *name, int length, CUdevice device)
{
    snprintf(name, length, device == 40 ? "NVIDIA H200" : "NVIDIA H200 MIG 1g.18gb");
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    if (device != 40 && device != 41)
        return 101;
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : -1;
    return 0;
}

/* Above 4 GiB, so that a handle that was cut to 32 bits is noticed */
static char *const first = (char *)0x7f0000000040;

int nvmlInit_v2(void) { return INIT; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(first + index);
    return 0;
}
static int index_of(nvmlDevice_t device) { return (int)((char *)device - first); }
int nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    if (index_of(device) < 0 || index_of(device) > 1)
        return 2;
    snprintf(uuid, length, "%s-%d", index_of(device) ? "MIG" : "GPU", index_of(device));
    return 0;
}
int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    *memory = (nvmlMemory_t){150ull << 30, 140ull << 30, 10ull << 30};
    return 0;
}
int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *load)
{
    *load = (nvmlUtilization_t){25, 99};
    return index_of(device) ? 3 : 0;
}
