#include "helper.h"

#include <algorithm>
#include <utility>

namespace verbena {

namespace {

// About 100 us of looking for work.
constexpr uint32_t kLooks = 5000;
// So long the world waits for a half that is under way before it offers its core.
constexpr uint32_t kWaits = 2000;
// Of so many cycles, so many may be missed; otherwise the helper rests, each time for longer.
constexpr uint32_t kTurns = 1024, kMisses = 256;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

Helper::Helper(std::function<void()> work) : work_(std::move(work)), thread_([this] { run(); }) {}

Helper::~Helper() {
    end_.store(true);
    asleep_.store(0);
    asleep_.notify_one();
    thread_.join();
}

void Helper::wake() {
    if (rest_ > 0 || asleep_.load(std::memory_order_relaxed) == 0) return;
    asleep_.store(0);
    asleep_.notify_one();
}

bool Helper::awake() {
    if (rest_ > 0) {
        rest_--;
        return false;
    }
    return asleep_.load(std::memory_order_relaxed) == 0;
}

void Helper::finish() {
    if (claim(number_)) {
        work_();
        missed_++;
    } else {
        for (uint32_t i = 0; done_.load(std::memory_order_acquire) != number_; i++) {
            if (i < kWaits) {
                pause();
                continue;
            }
            missed_ += kMisses / 8;  // it has lost its core, which costs more than a half that it does not do
            while (done_.load(std::memory_order_acquire) != number_) std::this_thread::yield();
            break;
        }
    }
    if (++turns_ < kTurns) return;
    if (missed_ > kMisses) {
        rest_ = next_rest_;
        next_rest_ = std::min(2 * next_rest_, kLongestRest);
    } else {
        next_rest_ = kShortestRest;
    }
    turns_ = missed_ = 0;
}

void Helper::run() {
    uint32_t looks = 0;
    while (!end_.load(std::memory_order_relaxed)) {
        const uint64_t number = offered_.load(std::memory_order_acquire);
        if (number != claimed_.load(std::memory_order_relaxed) && claim(number)) {
            work_();
            done_.store(number, std::memory_order_release);
            looks = 0;
        } else if (++looks < kLooks) {
            pause();
        } else {
            asleep_.store(1);
            if (end_.load()) return;
            asleep_.wait(1);
            looks = 0;
        }
    }
}

}  // namespace verbena
