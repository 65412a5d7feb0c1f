/* libcuda.so.1 for a machine without a driver, as far as cuDNN needs one to build plans: it takes compiled kernels, and
 * runs nothing. */
#define TAKES(name) int name() { return 0; }
#define GIVES_A_HANDLE(name) int name(void** handle) { *handle = "a handle"; return 0; }
#define GIVES(name, number) int name(int* value) { *value = number; return 0; }

GIVES_A_HANDLE(cuLibraryLoadData)
GIVES_A_HANDLE(cuLibraryLoadFromFile)
GIVES_A_HANDLE(cuLibraryGetKernel)
GIVES_A_HANDLE(cuKernelGetFunction)
GIVES_A_HANDLE(cuModuleLoadData)
GIVES_A_HANDLE(cuModuleGetFunction)
GIVES_A_HANDLE(cuCtxGetCurrent)
GIVES(cuDriverGetVersion, 13000)
GIVES(cuDeviceGetCount, 1)
GIVES(cuDeviceGet, 0)
GIVES(cuKernelGetAttribute, 0)
GIVES(cuOccupancyMaxPotentialClusterSize, 0)
TAKES(cuLibraryUnload)
TAKES(cuModuleUnload)
TAKES(cuKernelSetAttribute)
TAKES(cuTensorMapEncodeIm2col)
TAKES(cuTensorMapEncodeTiled)
TAKES(cuCtxGetLimit)
TAKES(cuCtxPopCurrent)
TAKES(cuCtxPushCurrent)
TAKES(cuLinkAddData)
TAKES(cuLinkComplete)
TAKES(cuLinkCreate)
TAKES(cuLinkDestroy)
TAKES(cuStreamGetCtx)

int cuGetErrorName(int error, const char** name) { *name = "CUDA_ERROR_NO_DEVICE"; return error * 0; }
int cuGetErrorString(int error, const char** text) { *text = "there is no device"; return error * 0; }
int cuLaunchKernel() { return 100; }
int cuLaunchKernelEx() { return 100; }
int cuLaunchCooperativeKernel() { return 100; }
