// Threads of a block that meet: each is a fiber, with a stack of its own. One runs at a time.
#undef _FORTIFY_SOURCE  // its longjmp allows no jump to another stack
#include <setjmp.h>  // swapcontext asks the kernel for the signal mask, twice a switch
#include <string.h>
#include <ucontext.h>

#include <memory>
#include <vector>

#include "work.h"

namespace {
constexpr size_t STACK_SIZE = 1 << 16;
struct Fiber {
    jmp_buf place;
    HostCudaIndex index;
    std::unique_ptr<char[]> stack;  // null until it first runs; then it is kept for all kernels
    bool over;
    HostCudaMeeting waits;
};
std::vector<Fiber> fibers;
jmp_buf scheduler;
int current = -1;
HostCudaIndex* thread_index;  // `threadIdx` of the running kernel
void (*body)(void*);
void* body_data;
constexpr int WARP_SIZE = 32, MOST_THREADS = 1024, LARGEST_VALUE = 16;

void leave() {
    if (!_setjmp(fibers[current].place)) _longjmp(scheduler, 1);
}

void enter() {
    for (;;) {
        body(body_data);
        fibers[current].over = true;
        leave();
    }
}

void resume(Fiber& fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.stack) _longjmp(fiber.place, 1);
    fiber.stack.reset(new char[STACK_SIZE]);
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = fiber.stack.get();
    start.uc_stack.ss_size = STACK_SIZE;
    makecontext(&start, enter, 0);
    setcontext(&start);
}
}  // namespace

extern "C" {
int host_cuda_thread() { return current < 0 ? 0 : current; }

void host_cuda_meet(HostCudaMeeting meeting) {
    if (current < 0) return;
    Fiber& fiber = fibers[current];
    fiber.waits = meeting;
    leave();
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
    }
    for (bool alive = true; alive;) {
        bool warps = false;
        alive = false;
        for (unsigned t = 0; t < count; ++t) {
            Fiber& fiber = fibers[t];
            if (!fiber.over && fiber.waits == MEET_NOBODY) {
                current = t;
                *thread_index = fiber.index;
                resume(fiber);
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
