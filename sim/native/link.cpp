#include "link.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>

namespace verbena {

namespace {

// A slot begins with the length of the frame; at 48 is the time, at 63 owner and type.
constexpr uint64_t kTimeAt = 48, kOwnerAt = 63;
constexpr uint8_t kConsumers = 0x80, kTypes = 0x7F;
constexpr uint8_t kSync = 0, kTerminate = 1, kPacket = 0x40;

std::atomic_ref<uint8_t> owner(uint8_t *slot) { return std::atomic_ref<uint8_t>(slot[kOwnerAt]); }

// How often a wait looks before it sleeps; a look takes some 50 ns. Where sleeps turn out to be short, the peer is at work on another core: then to look
// longer saves it the bell, and this side the way back from sleep.
constexpr uint32_t kSpins = 200, kMostSpins = 1600;
constexpr uint64_t kShortSleep = 100'000;  // ns

uint64_t nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

Link::Link(const LinkSettings &settings)
    : socket_(settings.socket),
      memory_bytes_(settings.memory_bytes),
      out_(settings.out),
      in_(settings.in),
      latency_(settings.latency),
      interval_(settings.interval),
      epoch_(settings.epoch),
      last_received_(settings.epoch),
      spins_(kSpins) {
    void *memory = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, settings.memory, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category());
    memory_ = static_cast<uint8_t *>(memory);
    if (settings.bell > 0) {
        bell_ = memory_ + settings.bell;
        peers_bell_ = memory_ + settings.peers_bell;
    }
    ::close(settings.memory);
}

Link::~Link() { abandon(); }

void Link::abandon() {
    munmap(memory_, memory_bytes_);
    ::close(socket_);
}

bool Link::put(uint8_t type, uint64_t time, const uint8_t *data, size_t size) {
    uint8_t *slot = this->slot(out_, tail_);
    if (owner(slot).load(std::memory_order_acquire) & kConsumers) return false;
    std::memset(slot, 0, kOwnerAt);
    const auto length = static_cast<uint16_t>(size);
    std::memcpy(slot, &length, sizeof length);
    std::memcpy(slot + kTimeAt, &time, sizeof time);
    if (size > 0) std::memcpy(slot + kHeader, data, size);
    owner(slot).store(kConsumers | type, std::memory_order_release);
    tail_ = (tail_ + 1) % out_.slots;
    if (bell_ != nullptr) {
        // Either this side sees that the peer sleeps, or the peer sees the message before it does.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        std::atomic_ref<uint8_t> asleep(*peers_bell_);
        if (asleep.load(std::memory_order_relaxed) && asleep.exchange(0)) ::send(socket_, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return true;
}

void Link::post(uint8_t type, uint64_t now, const uint8_t *data, size_t size) {
    const uint64_t time = now - epoch_ + latency_;
    last_sent_ = now;
    next_sync_ = now + interval_;
    if (flush() && put(type, time, data, size)) return;
    full++;
    waiting_.push_back({type, time, {data, data + size}});
}

bool Link::flush() {
    while (!waiting_.empty()) {
        const Message &message = waiting_.front();
        if (!put(message.type, message.time, message.data.data(), message.data.size())) return false;
        waiting_.pop_front();
    }
    return true;
}

bool Link::send(uint64_t now, const uint8_t *data, size_t size) {
    if (size > longest()) return false;
    if (state_ == LinkState::kUp) post(kPacket, now, data, size);
    return true;
}

void Link::sync(uint64_t now, bool at_once) {
    if (state_ != LinkState::kUp) return;
    if (now >= next_sync_ || (at_once && now > last_sent_)) post(kSync, now, nullptr, 0);
}

void Link::terminate() {
    // The time is 2^64 - 1 plus the latency, as SimBricks has it: it wraps.
    if (state_ == LinkState::kUp && flush()) put(kTerminate, kNever + latency_, nullptr, 0);
}

bool Link::peek(LinkMessage &message) {
    for (;;) {
        if (state_ == LinkState::kEnded) return false;
        uint8_t *slot = this->slot(in_, head_);
        const uint8_t byte = owner(slot).load(std::memory_order_acquire);
        if (!(byte & kConsumers)) return false;
        const uint8_t type = byte & kTypes;
        if (type == kTerminate) {
            state_ = LinkState::kEnded;
            waiting_.clear();
            return false;
        }
        std::memcpy(&message.time, slot + kTimeAt, sizeof message.time);
        message.time += epoch_;
        uint16_t length;
        std::memcpy(&length, slot, sizeof length);
        message.frame = type == kPacket;
        message.data = slot + kHeader;
        message.size = static_cast<uint32_t>(std::min<uint64_t>(length, in_.slot_bytes - kHeader));
        return true;
    }
}

void Link::release() {
    uint8_t *slot = this->slot(in_, head_);
    uint64_t time;
    std::memcpy(&time, slot + kTimeAt, sizeof time);
    last_received_ = std::max(last_received_, time + epoch_);
    owner(slot).store(owner(slot).load(std::memory_order_relaxed) & kTypes, std::memory_order_release);
    head_ = (head_ + 1) % in_.slots;
}

uint64_t Link::horizon() {
    LinkMessage message;
    if (peek(message)) return message.time;
    return state_ == LinkState::kUp ? last_received_ : kNever;
}

bool Link::lie_down() {
    std::atomic_ref<uint8_t>(*bell_).store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return !(owner(slot(in_, head_)).load(std::memory_order_acquire) & kConsumers);
}

void Link::get_up() {
    std::atomic_ref<uint8_t>(*bell_).store(0);
    char bytes[16];
    while (recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
}

void Link::await(const std::vector<Link *> &links, Patience &patience) {
    const bool alone = links.size() == 1 && links.front()->wakes();
    if (patience.spin(alone ? links.front()->spins_ : kSpins)) return;
    if (!std::ranges::all_of(links, &Link::wakes)) {
        patience.pause();
        return;
    }
    std::vector<pollfd> sockets;
    bool empty = true;
    for (Link *link : links) {
        sockets.push_back({link->socket_, POLLIN, 0});
        empty = link->lie_down() && empty;
    }
    const uint64_t start = nanoseconds();
    if (empty) ::poll(sockets.data(), sockets.size(), patience.left());
    if (alone) {
        uint32_t &spins = links.front()->spins_;
        spins = nanoseconds() - start < kShortSleep ? std::min(2 * spins, kMostSpins) : std::max(spins / 2, kSpins);
    }
    for (Link *link : links) link->get_up();
    patience.slept();
}

void Link::look() {
    if (state_ != LinkState::kUp) return;
    char byte;
    const ssize_t got = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return;
    // What it had sent before counts: it was in the ring before the socket's end came.
    LinkMessage message;
    if (peek(message) || state_ != LinkState::kUp) return;
    state_ = LinkState::kGone;
    waiting_.clear();
}

namespace {

constexpr uint64_t kLooks = 1'000'000;  // ns
// How long is slept, by how long has been waited. Not sched_yield: beside a foreign busy process that costs a tick of the scheduler each time, and
// who wakes from sleep does not wait for its end.
constexpr uint64_t kShort = 1'000'000, kLong = 10'000'000;
constexpr long kNap = 20'000, kSleep = 100'000, kLongSleep = 500'000;

}  // namespace

Patience::Patience(uint32_t milliseconds) : end_(nanoseconds() + uint64_t{milliseconds} * 1'000'000) {
    // By default the kernel adds 50 us to each sleep.
    static thread_local const int exact = prctl(PR_SET_TIMERSLACK, 1);
    (void)exact;
}

bool Patience::over() const { return nanoseconds() >= end_; }

void Patience::renew() {
    polls_ = 0;
    look_ = false;
}

bool Patience::spin(uint32_t most) {
    look_ = false;
    if (polls_ >= most) return false;
    polls_++;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
    return true;
}

int Patience::left() const {
    const uint64_t now = nanoseconds();
    return now >= end_ ? 0 : static_cast<int>((end_ - now + 999'999) / 1'000'000);
}

void Patience::slept() {
    exhausted_ = over();
    look_ = true;
}

void Patience::pause() {
    if (spin(kSpins)) return;
    polls_++;
    const uint64_t now = nanoseconds();
    if (polls_ == kSpins + 1) since_ = looked_ = now;
    if (now - looked_ >= kLooks) {
        looked_ = now;
        look_ = true;
    }
    exhausted_ = now >= end_;
    const uint64_t waited = now - since_;
    const timespec time{0, waited < kShort ? kNap : waited < kLong ? kSleep : kLongSleep};
    nanosleep(&time, nullptr);
}

}  // namespace verbena
