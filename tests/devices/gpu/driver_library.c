/* libcuda.so.1 and libnvidia-ml.so.1 with NVIDIA's own argument types, as far as ox calls them: two devices, of which the
 * second is a MIG slice of the second GPU, which does not tell its load. INIT is what the first call returns. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

typedef struct { char bytes[16]; } CUuuid;
int cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (char)(0xf0 + i - (device == 41 ? 0x50 : 0));
    return device == 40 || device == 41 ? 0 : 101;
}

/* Above 4 GiB, so that a handle that was cut to 32 bits is noticed */
static char *const first = (char *)0x7f0000000040;
enum { SLICE = 16 };

int nvmlInit_v2(void) { return INIT; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(first + index);
    return 0;
}
static int index_of(nvmlDevice_t device) { return (int)((char *)device - first); }
int nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *later)
{
    *now = *later = (unsigned int)index_of(device);
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    *count = index_of(device) == 1 ? 7 : 0;
    return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *slice)
{
    if (index_of(device) != 1 || index != 4)
        return 6; /* there is no slice in this place */
    *slice = (nvmlDevice_t)(first + SLICE);
    return 0;
}
static const char *const uuids[2] = {
    "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff",
    "MIG-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf",
};
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(first + (strcmp(uuid, uuids[0]) ? SLICE : 0));
    return strcmp(uuid, uuids[0]) && strcmp(uuid, uuids[1]) ? 6 : 0;
}
typedef struct { unsigned int pid; unsigned long long memory; unsigned int gpu, compute; } nvmlProcessInfo_t;
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    if (index_of(device) != SLICE)
        return 2;
    if (*count < 3) {
        *count = 3;
        return 7;
    }
    infos[0] = (nvmlProcessInfo_t){(unsigned int)getpid(), 1ull << 30, 4, 0};
    infos[1] = (nvmlProcessInfo_t){4000000001u, ~0ull, 4, 0};
    infos[2] = (nvmlProcessInfo_t){4000000002u, 5ull << 30, 4, 0};
    *count = 3;
    return 0;
}
int nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    if (index_of(device) != 0 && index_of(device) != SLICE)
        return 2;
    snprintf(uuid, length, "%s", uuids[index_of(device) == SLICE]);
    return 0;
}
int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    *memory = index_of(device) == SLICE ? (nvmlMemory_t){18ull << 30, 12ull << 30, 6ull << 30}
                                        : (nvmlMemory_t){150ull << 30, 140ull << 30, 10ull << 30};
    return 0;
}
int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *load)
{
    *load = (nvmlUtilization_t){25, 99};
    return index_of(device) ? 3 : 0;
}
