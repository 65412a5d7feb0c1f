// What the libraries of this folder share: work of the device, and counters.
#pragma once
#include <stddef.h>

enum Counter { LAUNCHES, PRODUCTS, GRAPHS, WAITS, TO_DEVICE, TO_HOST, ON_DEVICE, FILLS, BYTES_TO_DEVICE, BYTES_TO_HOST, COUNTERS };

enum CudaError { SUCCESS = 0, INVALID_VALUE = 1, DEVICE_UNINITIALIZED = 201, NOT_FOUND = 500, FAULT = 700, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };

enum HostCudaMeeting { MEET_NOBODY, MEET_BLOCK, MEET_WARP };

struct HostCudaIndex {
    unsigned x, y, z;
};

extern "C" {
extern long host_cuda_counts[COUNTERS];
// Whether a stream is being captured. Then work is not done, but kept in a graph with a copy of its data.
extern int host_cuda_capturing;
// The device of this thread. Memory has a device; a kernel that touches that of another one is FAULT, which it or the next
// wait gives.
extern thread_local int host_cuda_device;
extern int host_cuda_devices;  // how many there are
void host_cuda_own(void* memory, size_t size);
void host_cuda_disown(void* memory);
int host_cuda_device_of(void* memory);
// Whether events and streams say that their work is still under way.
extern int host_cuda_busy;
// The error that what waits for the device, and what asks for its memory, gives; SUCCESS while it works.
extern int host_cuda_lost;
// Do the work, or keep it. `counter` counts it when it is done.
void host_cuda_submit(void (*run)(void*), const void* data, size_t size, enum Counter counter);
// For what waits: the error of a capture, which is lost then, or SUCCESS.
int host_cuda_wait(void);
void host_cuda_begin_capture(void);
void* host_cuda_end_capture(void);  // the graph; null if the capture was lost
void host_cuda_launch_graph(void* graph);
void host_cuda_free_graph(void* graph);

// Device memory.
constexpr size_t ALIGNMENT = 512;
constexpr int NOT_A_NUMBER = 0xff;  // new memory is not zero: what reads it too early gives NaN
void* host_cuda_allocate(size_t size);  // null if there is none
size_t host_cuda_release(void* memory);

// Run a thread of a block for each index, which `index` has while that thread runs.
void host_cuda_run_block(HostCudaIndex size, HostCudaIndex* index, void (*run)(void*), void* data);
// Wait until the other threads of the block, or of the warp, are here.
void host_cuda_meet(HostCudaMeeting meeting);
int host_cuda_thread(void);  // the number of the running thread in its block
// Give a value to the warp, and take that of a lane.
void host_cuda_exchange(void* value, size_t size, int lane);
}
