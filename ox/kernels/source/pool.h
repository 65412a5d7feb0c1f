// The threads of all kernels on a CPU. A waiting thread spins for some microseconds, then sleeps: a pool that spins on
// slows every other pool of the process (OpenBLAS', ONNX Runtime's) by a factor of ten.
#pragma once
#include <pthread.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace ox {

constexpr int SPIN = 4000;  // pauses, about 40 to 120 µs
constexpr int MOST_THREADS = 256;
constexpr double WORTH_WAKING = 40e-6;  // seconds of work: to wake a thread takes the caller 8 µs, and the thread some more

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

using Task = void (*)(const void* context, long long begin, long long end);

// Whether this thread is inside a task: what a task shares out, it does itself.
inline bool& inside_task() {
    static thread_local bool inside = false;
    return inside;
}

class Pool {
  public:
    void set_threads(int count) {
        std::lock_guard<std::mutex> one_caller(caller_);
        stop();
        wanted_ = count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count;
    }

    int threads() const { return wanted_; }

    // Runs task on [first, count) in blocks. Calls from several threads take turns; the second one runs its work itself.
    void run(long long count, long long block, Task task, const void* context, long long first = 0) {
        if (wanted_ == 1 || count - first <= block || inside_task() || !caller_.try_lock()) {
            task(context, first, count);
            return;
        }
        std::lock_guard<std::mutex> unlock_at_end(caller_, std::adopt_lock);
        if (workers_.empty()) start();
        task_ = task, context_ = context, count_ = count, block_ = block;
        next_.store(first, std::memory_order_relaxed);
        open_.store(true, std::memory_order_seq_cst);
        round_.fetch_add(1, std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_seq_cst)) {
            std::lock_guard<std::mutex> lock(sleep_);
            wake_.notify_all();
        }
        work();
        // Who wakes up only now finds nothing to do: nobody waits for it. A worker says that it comes before it looks
        // whether the round is open, so that it is either waited for here or sees that it is too late.
        open_.store(false, std::memory_order_seq_cst);
        for (int spins = 0; inside_.load(std::memory_order_seq_cst); spins++) {
            if (spins < SPIN)
                pause_cpu();
            else
                std::this_thread::yield();
        }
        if (failed_.exchange(false)) throw std::bad_alloc();
    }

    // The same for blocks of a few microseconds each: where threads sleep, the caller begins alone, and wakes them when
    // what is left is worth it.
    void run_light(long long count, long long block, Task task, const void* context) {
        long long done = 0;
        if (wanted_ > 1 && sleeping_.load(std::memory_order_relaxed) && !inside_task()) {
            const auto start = std::chrono::steady_clock::now();
            for (std::chrono::duration<double> left{0.0}; count - done > block && left.count() <= WORTH_WAKING;) {
                task(context, done, done + block);
                done += block;
                left = (std::chrono::steady_clock::now() - start) * ((double)(count - done) / (double)done);
            }
        }
        run(count, block, task, context, done);
    }

    // In a forked child the workers are gone: forget them, without their destructors.
    void forget() {
        new (&workers_) std::vector<std::thread>();
        new (&caller_) std::mutex();
        new (&sleep_) std::mutex();
        new (&wake_) std::condition_variable();
        sleeping_.store(0);
        inside_.store(0);
        open_.store(false);
    }

  private:
    void start() {
        ending_.store(false);
        long long round = round_.load();
        try {
            for (int i = 1; i < wanted_; i++) workers_.emplace_back([this, round] { serve(round); });
        } catch (const std::system_error&) {  // the system has no more threads: go on with those that started
        }
    }

    void stop() {
        if (workers_.empty()) return;
        {
            std::lock_guard<std::mutex> lock(sleep_);
            ending_.store(true);
            wake_.notify_all();
        }
        for (std::thread& worker : workers_) worker.join();
        workers_.clear();
    }

    void work() {
        inside_task() = true;
        for (;;) {
            long long begin = next_.fetch_add(block_, std::memory_order_relaxed);
            if (begin >= count_) break;
            long long end = begin + block_;
            try {
                task_(context_, begin, end < count_ ? end : count_);
            } catch (const std::bad_alloc&) {
                failed_.store(true);
            }
        }
        inside_task() = false;
    }

    void serve(long long seen) {
        for (;;) {
            int spins = 0;
            while (round_.load(std::memory_order_acquire) == seen && !ending_.load(std::memory_order_relaxed)) {
                if (++spins < SPIN) {
                    pause_cpu();
                    continue;
                }
                std::unique_lock<std::mutex> lock(sleep_);
                sleeping_.fetch_add(1, std::memory_order_seq_cst);
                wake_.wait(lock, [&] { return round_.load(std::memory_order_seq_cst) != seen || ending_.load(); });
                sleeping_.fetch_sub(1, std::memory_order_seq_cst);
            }
            if (ending_.load()) return;
            seen = round_.load(std::memory_order_acquire);
            inside_.fetch_add(1, std::memory_order_seq_cst);
            if (open_.load(std::memory_order_seq_cst)) work();
            inside_.fetch_sub(1, std::memory_order_seq_cst);
        }
    }

    std::mutex caller_, sleep_;
    std::condition_variable wake_;
    std::vector<std::thread> workers_;
    std::atomic<int> wanted_{1};
    std::atomic<int> sleeping_{0}, inside_{0};  // inside: workers in the round, or about to see that it is over
    std::atomic<long long> round_{0}, next_{0};
    std::atomic<bool> open_{false}, ending_{false}, failed_{false};  // failed: a task had no memory
    Task task_ = nullptr;
    const void* context_ = nullptr;
    long long count_ = 0, block_ = 1;
};

// Never destroyed: its threads may run until the process ends.
inline Pool& pool() {
    static Pool* one = [] {
        pthread_atfork(nullptr, nullptr, [] { pool().forget(); });
        return new Pool();
    }();
    return *one;
}

template <class F> inline void call(const void* body, long long begin, long long end) { (*static_cast<const F*>(body))(begin, end); }

template <class F> inline void parallel(long long count, long long block, const F& body) {
    if (count > block) pool().run(count, block, call<F>, &body);
    else if (count > 0) body(0LL, count);
}

// For blocks of a few microseconds.
template <class F> inline void parallel_light(long long count, long long block, const F& body) {
    if (count > block) pool().run_light(count, block, call<F>, &body);
    else if (count > 0) body(0LL, count);
}

// While it lives, this thread shares out nothing, if `small`: for work that ends before another thread would wake up.
class Alone {
  public:
    explicit Alone(bool small) : before_(inside_task()) { inside_task() = before_ || small; }
    ~Alone() { inside_task() = before_; }

  private:
    const bool before_;
};

// 0, or 1 where there was no memory for what a function does.
template <class F> inline int status_of(const F& body) {
    try {
        body();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

}  // namespace ox
