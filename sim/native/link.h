// One end of a link to another simulator: SimBricks' Ethernet interface, version 1, once its handshake is done.
//
// Frames and time cross it through two rings in shared memory. Times are picoseconds. What is sent bears the time of its arrival, the sender's
// time plus its latency, and promises that nothing earlier follows. SYNC messages say so while there are no frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace verbena {

constexpr uint64_t kNever = ~uint64_t{0};

class Patience;

// Time of a cycle, rounded down, from the exact product.
class Clock {
public:
    explicit Clock(double hz) : hz_(static_cast<uint64_t>(hz + 0.5)) {}

    uint64_t time(uint64_t cycle) const {
        return static_cast<uint64_t>(static_cast<unsigned __int128>(cycle) * kSecond / hz_);
    }
    // The first cycle at or after a time.
    uint64_t cycle(uint64_t time) const {
        return static_cast<uint64_t>((static_cast<unsigned __int128>(time) * hz_ + kSecond - 1) / kSecond);
    }

private:
    static constexpr uint64_t kSecond = 1'000'000'000'000;

    const uint64_t hz_;
};

// Where the slots of one direction lie in the memory.
struct RingPlace {
    uint64_t offset = 0;
    uint64_t slot_bytes = 0;
    uint64_t slots = 0;
};

struct LinkSettings {
    int socket = -1;  // connected; nothing is sent on it, its end tells that the peer is gone
    int memory = -1;
    uint64_t memory_bytes = 0;
    RingPlace out;
    RingPlace in;
    uint64_t latency = 0;   // of what is sent
    uint64_t interval = 0;  // between two messages, at most
    uint64_t epoch = 0;     // this side's time when the peer's clock stands at 0
    uint64_t bell = 0;        // where in the memory this side says that it sleeps, so that the peer wakes it; 0: it does not
    uint64_t peers_bell = 0;  // where the peer says so
};

enum class LinkState : int {
    kUp,
    kEnded,  // the peer has said that it ends
    kGone,   // the peer is gone without a word
};

struct LinkMessage {
    bool frame = false;
    uint64_t time = 0;
    const uint8_t *data = nullptr;  // valid until the message is released
    uint32_t size = 0;
};

class Link {
public:
    // Takes over both descriptors.
    explicit Link(const LinkSettings &settings);
    ~Link();
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;

    uint32_t longest() const { return static_cast<uint32_t>(out_.slot_bytes - kHeader); }

    // At a time not before that of the last message; a frame that does not fit stays away: false. Without room in the ring it waits here.
    bool send(uint64_t now, const uint8_t *data, size_t size);
    // Tells the time, if the last message is older than the interval, or `at_once` if it is older at all.
    void sync(uint64_t now, bool at_once = false);
    // The last message. What still waits for room is lost with it.
    void terminate();
    // In a child process: only its parent has the link. Not to be used any more.
    void abandon();
    // Time at which a SYNC is due.
    uint64_t sync_due() const { return state_ == LinkState::kUp ? next_sync_ : kNever; }
    // Moves what waits into the ring; whether nothing waits any more.
    bool flush();

    // The oldest message that is not released. False if there is none; `state` tells whether any can come.
    bool peek(LinkMessage &message);
    void release();

    // Nothing earlier can come: the time of the oldest message, of the last one if all are released, kNever if the link is down.
    uint64_t horizon();

    // Looks whether the peer is gone.
    void look();

    // Waits for a message on any of `links`, all of which are empty: awake for a while, then asleep until a peer wakes it, or, if one cannot, for short
    // times. Returns early; `patience` says when it is enough.
    static void await(const std::vector<Link *> &links, Patience &patience);
    LinkState state() const { return state_; }

    uint64_t full = 0;  // messages that had to wait for room

private:
    struct Message {
        uint8_t type;
        uint64_t time;
        std::vector<uint8_t> data;
    };

    static constexpr uint64_t kHeader = 64;

    bool wakes() const { return bell_ != nullptr && waiting_.empty(); }
    // From now on the peer wakes this side; whether that is in time.
    bool lie_down();
    void get_up();

    bool put(uint8_t type, uint64_t time, const uint8_t *data, size_t size);
    void post(uint8_t type, uint64_t now, const uint8_t *data, size_t size);
    uint8_t *slot(const RingPlace &ring, uint64_t index) const { return memory_ + ring.offset + index * ring.slot_bytes; }

    const int socket_;
    uint8_t *memory_ = nullptr;
    const uint64_t memory_bytes_;
    const RingPlace out_, in_;
    const uint64_t latency_, interval_, epoch_;
    uint8_t *bell_ = nullptr, *peers_bell_ = nullptr;
    uint64_t last_received_;
    uint32_t spins_;  // that a wait looks awake before it sleeps
    uint64_t tail_ = 0, head_ = 0;
    uint64_t next_sync_ = 0;
    uint64_t last_sent_ = kNever;
    std::deque<Message> waiting_;
    LinkState state_ = LinkState::kUp;
};

// Waits a little longer each time: with the core, then asleep.
class Patience {
public:
    explicit Patience(uint32_t milliseconds);
    void pause();
    // The first part of it, at most so many times: whether it was done awake.
    bool spin(uint32_t most);
    // Milliseconds that may be slept, and that they were.
    int left() const;
    void slept();
    // Something came.
    void renew();
    bool exhausted() const { return exhausted_; }
    // The same for who does not wait.
    bool over() const;
    // Once a millisecond or so.
    bool may_look() const { return look_; }

private:
    uint32_t polls_ = 0;
    uint64_t since_ = 0;  // ns
    uint64_t looked_ = 0;
    const uint64_t end_;
    bool exhausted_ = false;
    bool look_ = false;
};

}  // namespace verbena
