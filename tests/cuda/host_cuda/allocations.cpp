// Device memory, and how other processes share it (CUDA IPC). A shared allocation moves, under the same address, into a
// shared memory object of POSIX, whose name is its handle.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <string>

#include "work.h"

namespace {
constexpr size_t PAGE = 4096;
constexpr size_t HANDLE = 64;       // bytes of a cudaIpcMemHandle_t

size_t whole_pages(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

struct Allocation {
    size_t size;
    std::string shared;  // the name of its object
    bool opened;         // by a handle of another process
};

struct Allocations : std::map<char*, Allocation> {
    ~Allocations() {
        for (auto& [address, allocation] : *this)
            if (!allocation.opened && !allocation.shared.empty()) shm_unlink(allocation.shared.c_str());
    }
} allocations;
}  // namespace

extern "C" {
void* host_cuda_allocate(size_t size) {
    void* made = nullptr;
    // on pages of its own, which can be shared, or closed to other devices
    const bool alone = size >= PAGE || host_cuda_devices > 1;
    const size_t taken = alone ? whole_pages(size ? size : 1) : size ? size : 1;
    if (posix_memalign(&made, alone ? PAGE : ALIGNMENT, taken)) return nullptr;
    memset(made, NOT_A_NUMBER, size);
    allocations[static_cast<char*>(made)] = {size, "", false};
    if (host_cuda_devices > 1) host_cuda_own(made, taken);
    return made;
}

size_t host_cuda_release(void* memory) {
    size_t size = 0;
    const auto found = allocations.find(static_cast<char*>(memory));
    if (found != allocations.end()) {
        const Allocation& allocation = found->second;
        size = allocation.size;
        if (!allocation.shared.empty()) {
            shm_unlink(allocation.shared.c_str());
            mmap(memory, whole_pages(allocation.size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
        allocations.erase(found);
    }
    if (memory && host_cuda_devices > 1) host_cuda_disown(memory);
    free(memory);
    return size;
}

int cuMemGetAddressRange_v2(void** base, size_t* size, void* address) {
    auto above = allocations.upper_bound(static_cast<char*>(address));
    if (above == allocations.begin()) return NOT_FOUND;
    const auto& [start, allocation] = *--above;
    if (address > start + allocation.size) return NOT_FOUND;
    return *base = start, *size = allocation.size, SUCCESS;
}

int host_cuda_share(void* memory, char* handle) {
    const auto found = allocations.find(static_cast<char*>(memory));
    if (found == allocations.end()) return INVALID_VALUE;
    Allocation& allocation = found->second;
    if (allocation.size < PAGE) return NOT_SUPPORTED;  // others lie on its page
    if (allocation.shared.empty()) {
        static int count;
        const std::string name = "/ox-host-cuda-" + std::to_string(getpid()) + "-" + std::to_string(count++);
        const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
        if (file < 0) return NOT_SUPPORTED;
        const bool written = write(file, memory, allocation.size) == static_cast<ssize_t>(allocation.size);
        void* mapped = mmap(memory, whole_pages(allocation.size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
        close(file);
        if (!written || mapped != memory) return shm_unlink(name.c_str()), NOT_SUPPORTED;
        allocation.shared = name;
    }
    memset(handle, 0, HANDLE);
    snprintf(handle, HANDLE, "%d %s", getpid(), allocation.shared.c_str());
    return SUCCESS;
}

int host_cuda_open_shared(const char* handle, void** memory) {
    int owner;
    char name[HANDLE];
    if (sscanf(handle, "%d %49s", &owner, name) != 2) return INVALID_VALUE;
    if (owner == getpid()) return DEVICE_UNINITIALIZED;  // CUDA's error for the process that made it
    for (auto& [address, allocation] : allocations)
        if (allocation.opened && allocation.shared == name) return *memory = address, SUCCESS;
    const int file = shm_open(name, O_RDWR, 0);
    if (file < 0) return INVALID_VALUE;
    struct stat state;
    fstat(file, &state);
    *memory = mmap(nullptr, whole_pages(state.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (*memory == MAP_FAILED) return INVALID_VALUE;
    allocations[static_cast<char*>(*memory)] = {static_cast<size_t>(state.st_size), name, true};
    return SUCCESS;
}

int host_cuda_close_shared(void* memory) {
    const auto found = allocations.find(static_cast<char*>(memory));
    if (found == allocations.end() || !found->second.opened) return INVALID_VALUE;
    munmap(memory, whole_pages(found->second.size));
    allocations.erase(found);
    return SUCCESS;
}
}
