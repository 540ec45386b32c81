// A second core for a world of several adapters: a thread that evaluates half of the engines of a cycle, if it comes to it first.
//
// The world's own thread never depends on it: what the helper has not begun when the world has done its half, the world does itself. So results are the
// same, and a busy machine costs no more than the turn of a helper that lost its core inside of an engine. The helper looks for work for a while, then it
// sleeps, until a call that lets much time pass wakes it. When it is rarely in time it is left asleep for long.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace verbena {

class Helper {
public:
    // `work` is the helper's half of a cycle.
    explicit Helper(std::function<void()> work);
    ~Helper();
    Helper(const Helper &) = delete;
    Helper &operator=(const Helper &) = delete;

    // Much time is going to pass.
    void wake();
    // Whether it is worth while to offer it the half of this cycle.
    bool awake();
    void offer() { offered_.store(++number_, std::memory_order_release); }
    // Returns when the half that was offered is done, by whomever.
    void finish();

private:
    void run();
    bool claim(uint64_t number) {
        uint64_t before = number - 1;
        return claimed_.compare_exchange_strong(before, number, std::memory_order_acq_rel);
    }

    const std::function<void()> work_;
    uint64_t number_ = 0;  // of the cycle that was offered last
    alignas(64) std::atomic<uint64_t> offered_{0};
    alignas(64) std::atomic<uint64_t> claimed_{0};
    alignas(64) std::atomic<uint64_t> done_{0};
    alignas(64) std::atomic<uint32_t> asleep_{0};  // 1 while it sleeps, or is about to
    std::atomic<bool> end_{false};
    static constexpr uint32_t kShortestRest = 2048, kLongestRest = 131072;  // cycles
    uint32_t turns_ = 0, missed_ = 0, rest_ = 0, next_rest_ = kShortestRest;
    std::thread thread_;
};

}  // namespace verbena
