// Threads of a block that meet: each is a fiber, with a stack of its own. One runs at a time.
#include <string.h>
#include <ucontext.h>

#include <vector>

#include "work.h"

namespace {
struct Fiber {
    ucontext_t context;
    HostCudaIndex index;
    std::vector<char> stack = std::vector<char>(1 << 16);
    bool over;
    HostCudaMeeting waits;
};
std::vector<Fiber> fibers;
ucontext_t scheduler;
int current = -1;
HostCudaIndex* thread_index;  // `threadIdx` of the running kernel
void (*body)(void*);
void* body_data;
constexpr int WARP_SIZE = 32, MOST_THREADS = 1024, LARGEST_VALUE = 16;

void enter() {
    body(body_data);
    fibers[current].over = true;
}
}  // namespace

extern "C" {
int host_cuda_thread() { return current < 0 ? 0 : current; }

void host_cuda_meet(HostCudaMeeting meeting) {
    if (current < 0) return;
    Fiber& fiber = fibers[current];
    fiber.waits = meeting;
    swapcontext(&fiber.context, &scheduler);
    *thread_index = fiber.index;
}

void host_cuda_exchange(void* value, size_t size, int lane) {
    static char boxes[MOST_THREADS][LARGEST_VALUE];
    const int me = host_cuda_thread();
    memcpy(boxes[me], value, size);
    host_cuda_meet(MEET_WARP);
    memcpy(value, boxes[me - me % WARP_SIZE + lane % WARP_SIZE], size);
    host_cuda_meet(MEET_WARP);
}

void host_cuda_run_block(HostCudaIndex size, HostCudaIndex* index, void (*run)(void*), void* data) {
    const unsigned count = size.x * size.y * size.z;
    if (fibers.size() < count) fibers.resize(count);
    thread_index = index;
    body = run;
    body_data = data;
    for (unsigned t = 0; t < count; ++t) {
        Fiber& fiber = fibers[t];
        fiber.over = false;
        fiber.waits = MEET_NOBODY;
        fiber.index = {t % size.x, t / size.x % size.y, t / size.x / size.y};
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, enter, 0);
    }
    for (bool alive = true; alive;) {
        bool warps = false;
        alive = false;
        for (unsigned t = 0; t < count; ++t) {
            Fiber& fiber = fibers[t];
            if (!fiber.over && fiber.waits == MEET_NOBODY) {
                current = t;
                *thread_index = fiber.index;
                swapcontext(&scheduler, &fiber.context);
            }
            alive |= !fiber.over;
            warps |= !fiber.over && fiber.waits == MEET_WARP;
        }
        // Now each is over or waits. Warps go on first; the block goes on when all stand at its barrier.
        for (unsigned t = 0; t < count; ++t)
            if (!warps || fibers[t].waits == MEET_WARP) fibers[t].waits = MEET_NOBODY;
    }
    current = -1;
}
}
