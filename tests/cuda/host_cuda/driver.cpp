// libcuda.so.1 without a device. A module is a shared library that g++ made of kernels; a launch calls one of its functions.
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "work.h"

namespace {
struct Work {
    void (*run)(void*);
    std::vector<char> data;
};
using Graph = std::vector<Work>;

Graph* graph;
bool lost;

struct Owned {
    size_t size;
    int device;
};
std::map<char*, Owned> memory;  // of all devices, page by page
std::mutex memory_lock;
sigjmp_buf at_fault;
int faults;

void protect(int device, int access) {
    std::lock_guard<std::mutex> hold(memory_lock);
    for (auto& [begin, owned] : memory)
        if (owned.device != device) mprotect(begin, owned.size, access);
}

void on_fault(int signal, siginfo_t* info, void*) {
    for (auto& [begin, owned] : memory)
        if (info->si_addr >= begin && info->si_addr < begin + owned.size) siglongjmp(at_fault, 1);
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    sigaction(signal, &usual, nullptr);
}

// Memory of the other devices cannot be touched while work of a device runs.
void run_on_device(void (*run)(void*), void* data) {
    static std::mutex one;
    std::lock_guard<std::mutex> hold(one);
    struct sigaction ours {}, before;
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &ours, &before);
    protect(host_cuda_device, PROT_NONE);
    if (sigsetjmp(at_fault, 1)) faults = 1;
    else run(data);
    protect(host_cuda_device, PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &before, nullptr);
}

using Launch = void (*)(const unsigned* size, void** arguments);
constexpr int VERSION = 13000, BLOCKS_PER_MULTIPROCESSOR = 2, BLOCKS = 264, THREADS = 512, MOST_THREADS = 1024, MOST_ROWS = 65535;
}  // namespace

extern "C" {
long host_cuda_counts[COUNTERS];
int host_cuda_capturing, host_cuda_busy, host_cuda_idle, host_cuda_lost, host_cuda_devices = 1;
thread_local int host_cuda_device;

void host_cuda_own(void* begin, size_t size) {
    std::lock_guard<std::mutex> hold(memory_lock);
    memory[static_cast<char*>(begin)] = {size, host_cuda_device};
}

void host_cuda_disown(void* begin) {
    std::lock_guard<std::mutex> hold(memory_lock);
    memory.erase(static_cast<char*>(begin));
}

int host_cuda_device_of(void* address) {
    std::lock_guard<std::mutex> hold(memory_lock);
    auto next = memory.upper_bound(static_cast<char*>(address));
    return next == memory.begin() ? 0 : std::prev(next)->second.device;
}

void host_cuda_submit(void (*run)(void*), const void* data, size_t size, Counter counter) {
    const char* bytes = static_cast<const char*>(data);
    if (host_cuda_capturing) {
        graph->push_back({run, std::vector<char>(bytes, bytes + size)});
        return;
    }
    ++host_cuda_counts[counter];
    const bool computes = counter == LAUNCHES || counter == PRODUCTS;
    if (computes && host_cuda_idle) return;
    if (computes && host_cuda_devices > 1) run_on_device(run, const_cast<void*>(data));
    else run(const_cast<void*>(data));
}

int host_cuda_wait() {
    if (host_cuda_capturing) {
        lost = true;
        return CAPTURE_UNSUPPORTED;
    }
    if (host_cuda_lost) return host_cuda_lost;
    ++host_cuda_counts[WAITS];
    return faults ? faults = 0, FAULT : SUCCESS;
}

void host_cuda_begin_capture() {
    graph = new Graph;
    lost = false;
    host_cuda_capturing = 1;
}

void* host_cuda_end_capture() {
    host_cuda_capturing = 0;
    if (lost) {
        delete graph;
        graph = nullptr;
    }
    return graph;
}

void host_cuda_launch_graph(void* captured) {
    ++host_cuda_counts[GRAPHS];
    for (Work& work : *static_cast<Graph*>(captured)) work.run(work.data.data());
}

void host_cuda_free_graph(void* captured) { delete static_cast<Graph*>(captured); }

int cuInit(unsigned) { return SUCCESS; }
int cuDriverGetVersion(int* version) { return *version = VERSION, SUCCESS; }
int cuDeviceGetCount(int* count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, SUCCESS; }
int cuDeviceGetName(char* name, int size, int) { return snprintf(name, size, "host_cuda"), SUCCESS; }
int cuDeviceGetAttribute(int* value, int attribute, int) { return *value = attribute == 75 ? 9 : 0, SUCCESS; }
int cuGetErrorName(int, const char** text) { return *text = "CUDA_ERROR", SUCCESS; }
int cuGetErrorString(int status, const char** text) {
    return *text = status == FAULT ? "memory of another device was touched" : "an error of tests/cuda/host_cuda", SUCCESS;
}
int cuCtxGetCurrent(void** context) { return *context = &graph, SUCCESS; }
int cuCtxSetCurrent(void*) { return SUCCESS; }
int cuCtxGetDevice(int* device) { return *device = host_cuda_device, SUCCESS; }
int cuStreamGetCtx(void*, void** context) { return *context = &graph, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }

// The image is the path of the library.
int cuModuleLoadData(void** module, const char* image) {
    *module = dlopen(image, RTLD_NOW | RTLD_LOCAL);
    if (!*module) fprintf(stderr, "%s\n", dlerror());
    return *module ? SUCCESS : NOT_FOUND;
}

int cuModuleUnload(void*) { return SUCCESS; }

int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = dlsym(module, (std::string("host_cuda_launch_") + name).c_str());
    return *function ? SUCCESS : NOT_FOUND;
}

int cuModuleGetGlobal_v2(void** address, size_t* size, void* module, const char* name) {
    *address = dlsym(module, name);
    if (size) *size = 0;
    return *address ? SUCCESS : NOT_FOUND;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, void*,
                   void** arguments, void**) {
    const unsigned size[] = {gx, gy, gz, bx, by, bz};
    if (gy > MOST_ROWS || gz > MOST_ROWS) return INVALID_VALUE;
    reinterpret_cast<Launch>(function)(size, arguments);
    return faults ? faults = 0, FAULT : SUCCESS;
}

int cuFuncGetAttribute(int* value, int attribute, void*) { return *value = attribute == 0 ? MOST_THREADS : 0, SUCCESS; }
int cuFuncSetAttribute(void*, int, int) { return SUCCESS; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
    return *blocks = BLOCKS_PER_MULTIPROCESSOR, SUCCESS;
}
int cuOccupancyMaxPotentialBlockSize(int* blocks, int* threads, void*, void*, size_t, int) {
    return *blocks = BLOCKS, *threads = THREADS, SUCCESS;
}
}
