// A switch between simulators, each at the other end of a link: it learns where MAC addresses are, and takes part in everybody's time. It needs no
// engine, and is a library of its own (sim/switch.py declares its functions).
//
// It stands at the earliest time that any of its ports has still to tell of. A frame is handled at the time at which it has arrived whole; frames of
// one time by the number of their port. It leaves when those before it on its port's line have left, and arrives the link's latency later: the
// receiver's own line takes the time of its bytes. A frame of n bytes occupies a line for max(n, 60) + 24 bytes.

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "capture.h"
#include "faults.h"
#include "link.h"

namespace verbena {

using Mac = std::array<uint8_t, 6>;
using Bytes = std::vector<uint8_t>;

struct PortSettings {
    double rate = 0;           // bits a second; 0: as fast as frames come
    uint64_t queue_bytes = 0;  // of frames that wait for the line; what exceeds them is dropped; 0: no limit
    uint64_t ecn_bytes = 0;    // from so many bytes on, frames are marked; 0: never
};

enum PortCounter { kReceived, kReceivedBytes, kSent, kSentBytes, kDropped, kMarked, kDamaged, kPortCounters };

namespace {

// Times at which clocks start are multiples of this: cycles of 100, 125, 156.25 and 250 MHz then coincide.
constexpr uint64_t kAlignment = 160'000;
constexpr double kPicoseconds = 1e12;
constexpr uint64_t kNanosecond = 1000;

constexpr size_t kEthernet = 14;
constexpr uint8_t kCongested = 3;

// Marks an IPv4 or IPv6 packet, if its sender understands marks. The ICRC leaves these bits out, the checksum of IPv4 does not.
bool mark(Bytes &frame) {
    if (frame.size() < kEthernet + 20) return false;
    uint8_t *ip = frame.data() + kEthernet;
    const int type = frame[12] << 8 | frame[13];
    if (type == 0x0800) {
        const uint8_t before = ip[1] & 3;
        if (before == 0) return false;
        if (before == kCongested) return true;
        // RFC 1624: HC' = ~(~HC + ~m + m'), of the 16-bit words that changed.
        const uint32_t old_word = static_cast<uint32_t>(ip[0] << 8 | ip[1]);
        ip[1] |= kCongested;
        const uint32_t new_word = static_cast<uint32_t>(ip[0] << 8 | ip[1]);
        uint32_t sum = (~static_cast<uint32_t>(ip[10] << 8 | ip[11]) & 0xFFFF) + (~old_word & 0xFFFF) + new_word;
        sum = (sum & 0xFFFF) + (sum >> 16);
        sum = (sum & 0xFFFF) + (sum >> 16);
        sum = ~sum & 0xFFFF;
        ip[10] = static_cast<uint8_t>(sum >> 8);
        ip[11] = static_cast<uint8_t>(sum);
        return true;
    }
    if (type != 0x86DD || (ip[1] >> 4 & 3) == 0) return false;
    ip[1] |= kCongested << 4;
    return true;
}

}  // namespace

class Switch {
public:
    Switch(int ports, uint64_t seed) : ports_(static_cast<size_t>(ports)) {
        for (int i = 0; i < ports; i++) port(i).faults.reseed(seed, static_cast<uint64_t>(i));
    }

    struct Port {
        std::unique_ptr<Link> link;
        PortSettings settings;
        FaultInjector faults;
        uint64_t counters[kPortCounters] = {};
        uint64_t frames = 0;     // that faults were decided of
        uint64_t last_due = 0;   // of the frames from here
        uint64_t free = 0;       // when the line towards the port's owner is
        uint64_t waiting = 0;    // bytes
        struct Waiting {
            uint64_t start;
            Bytes data;
            std::string comment;
        };
        std::deque<Waiting> queue;
    };

    Capture capture;

    Port &port(int index) { return ports_[static_cast<size_t>(index)]; }
    int ports() const { return static_cast<int>(ports_.size()); }
    uint64_t time() const { return time_; }

    void attach(int index, LinkSettings settings) {
        settings.epoch = time_ / kAlignment * kAlignment;
        Port &port = this->port(index);
        port.link = std::make_unique<Link>(settings);
        port.free = port.last_due = time_;
    }

    void detach(int index) {
        if (port(index).link) port(index).link->terminate();
        drop(index);
    }

    // Until `milliseconds` of waiting are over, or a port goes down. Returns whether one did.
    bool run(uint32_t milliseconds) {
        Patience patience(milliseconds);
        LinkMessage message, first;
        std::vector<Link *> silent_links;
        for (;;) {
            uint64_t earliest = kNever, silent = kNever;
            int who = -1, up = 0;
            silent_links.clear();
            for (int i = 0; i < ports(); i++) {
                Link *link = port(i).link.get();
                if (link == nullptr) continue;
                if (link->peek(message)) {
                    if (message.time < earliest || who < 0) {
                        earliest = message.time;
                        first = message;
                        who = i;
                    }
                } else if (link->state() != LinkState::kUp) {
                    drop(i);
                    return true;
                } else {
                    silent = std::min(silent, link->horizon());
                    silent_links.push_back(link);
                }
                up++;
            }
            if (up == 0) return false;
            come_to(std::max(time_, std::min(earliest, silent)));
            // A frame waits for what those who are silent may still send at its time.
            if (who >= 0 && (earliest < silent || (earliest == silent && !first.frame))) {
                if (first.frame) receive(who, first);
                port(who).link->release();
                patience.renew();
                // Whoever sends without end must not keep Ctrl-C away.
                if (++handled_ % kHandled == 0 && patience.over()) return false;
                continue;
            }
            const bool exhausted = patience.exhausted();
            for (auto &port : ports_) {
                if (!port.link) continue;
                if (!port.link->flush()) silent_links.push_back(port.link.get());  // nobody tells of room
                port.link->sync(time_, true);
                if (patience.may_look() || exhausted) port.link->look();
            }
            if (exhausted) return false;
            Link::await(silent_links, patience);
        }
    }

private:
    struct Arrival {
        int source;
        Mac to;
        Bytes data;
        std::string comment;
    };

    static constexpr uint64_t kHandled = 1024;

    void drop(int index) {
        Port &port = this->port(index);
        port.link.reset();
        port.queue.clear();
        port.waiting = 0;
        std::erase_if(learned_, [index](const auto &entry) { return entry.second == index; });
    }

    // What was to happen until then happens.
    void come_to(uint64_t time) {
        while (!arrivals_.empty() && arrivals_.begin()->first.first <= time) {
            auto node = arrivals_.extract(arrivals_.begin());
            time_ = std::max(time_, node.key().first);
            leave(time_);
            forward(node.mapped());
        }
        time_ = std::max(time_, time);
        leave(time_);
        for (auto &port : ports_)
            if (port.link) port.link->sync(time_);
    }

    void leave(uint64_t time) {
        for (int i = 0; i < ports(); i++) {
            Port &port = this->port(i);
            while (!port.queue.empty() && port.queue.front().start <= time) {
                const auto &frame = port.queue.front();
                port.waiting -= frame.data.size();
                if (port.link->send(frame.start, frame.data.data(), frame.data.size())) {
                    port.counters[kSent]++;
                    port.counters[kSentBytes] += frame.data.size();
                    capture.frame(i, true, frame.start, frame.data, false, frame.comment);
                } else {
                    port.counters[kDropped]++;
                }
                port.queue.pop_front();
            }
        }
    }

    void receive(int index, const LinkMessage &message) {
        Port &port = this->port(index);
        Arrival arrival{index, {}, {message.data, message.data + message.size}, ""};
        if (message.size < 12) {
            port.counters[kDropped]++;
            return;
        }
        port.counters[kReceived]++;
        port.counters[kReceivedBytes] += message.size;
        Mac from;
        std::copy_n(arrival.data.begin(), 6, arrival.to.begin());
        std::copy_n(arrival.data.begin() + 6, 6, from.begin());
        if (!(from[0] & 1)) learned_[from] = index;
        if (!port.faults.armed()) {
            capture.frame(index, false, time_, arrival.data, false, "");
            schedule(port, time_, false, std::move(arrival));
            return;
        }
        const Decision decision = port.faults.decide(port.frames++);
        capture.frame(index, false, time_, arrival.data, false, decision.text());
        if (decision.is[kLose] || decision.is[kDamage]) {
            port.counters[kDamaged] += decision.is[kDamage];
            return;
        }
        if (decision.is[kDuplicate]) {
            Arrival copy = arrival;
            copy.comment = "duplicate";
            schedule(port, time_, decision.is[kReorder], std::move(copy));
        }
        const uint64_t late = (decision.is[kReorder] ? decision.reorder_by : 0) + (decision.is[kDelay] ? decision.delay_by : 0);
        if (decision.is[kCorrupt]) FaultInjector::corrupt(arrival.data, decision.flips);
        arrival.comment = decision.text();
        schedule(port, time_ + late * kNanosecond, decision.is[kReorder], std::move(arrival));
    }

    void schedule(Port &source, uint64_t time, bool overtaken, Arrival arrival) {
        if (!overtaken) source.last_due = time = std::max(time, source.last_due);
        if (time <= time_) {
            forward(arrival);
        } else {
            arrivals_.emplace(std::pair(time, number_++), std::move(arrival));
        }
    }

    void forward(Arrival &arrival) {
        const auto known = learned_.find(arrival.to);
        if (known != learned_.end() && !(arrival.to[0] & 1)) {
            if (known->second != arrival.source) queue(port(known->second), arrival);
            return;
        }
        for (int i = 0; i < ports(); i++)
            if (i != arrival.source && port(i).link) queue(port(i), arrival);
    }

    void queue(Port &port, const Arrival &arrival) {
        const uint64_t size = arrival.data.size();
        const uint64_t start = std::max(time_, port.free);
        const bool waits = start > time_;
        if (waits && port.settings.queue_bytes > 0 && port.waiting + size > port.settings.queue_bytes) {
            port.counters[kDropped]++;
            return;
        }
        Bytes data = arrival.data;
        std::string comment = arrival.comment;
        if (waits && port.settings.ecn_bytes > 0 && port.waiting >= port.settings.ecn_bytes && mark(data)) {
            port.counters[kMarked]++;
            comment += comment.empty() ? "marked" : ", marked";
        }
        port.waiting += size;
        if (port.settings.rate > 0)
            port.free = start + static_cast<uint64_t>(static_cast<double>(std::max<uint64_t>(size, 60) + 24) * 8 * kPicoseconds / port.settings.rate);
        port.queue.push_back({start, std::move(data), std::move(comment)});
        leave(time_);
    }

    std::vector<Port> ports_;
    std::map<Mac, int> learned_;
    std::map<std::pair<uint64_t, uint64_t>, Arrival> arrivals_;  // by time and order
    uint64_t number_ = 0;
    uint64_t handled_ = 0;
    uint64_t time_ = 0;
};

}  // namespace verbena

using namespace verbena;

extern "C" {

Switch *vs_create(int ports, uint64_t seed) { return new Switch(ports, seed); }
void vs_destroy(Switch *self) { delete self; }

int vs_attach(Switch *self, int port, const LinkSettings *settings) {
    try {
        self->attach(port, *settings);
    } catch (const std::system_error &) {
        return 0;
    }
    return 1;
}

void vs_detach(Switch *self, int port) { self->detach(port); }
int vs_up(Switch *self, int port) { return self->port(port).link != nullptr; }
uint64_t vs_time(Switch *self) { return self->time(); }
int vs_run(Switch *self, uint32_t milliseconds) { return self->run(milliseconds); }
void vs_settings(Switch *self, int port, const PortSettings *settings) { self->port(port).settings = *settings; }
void vs_faults(Switch *self, int port, const FaultSettings *settings) { self->port(port).faults.settings = *settings; }

// In the order of PortCounter.
void vs_counters(Switch *self, int port, uint64_t *counters) {
    std::memcpy(counters, self->port(port).counters, sizeof self->port(port).counters);
}

int vs_capture_open(Switch *self, const char *path, int frames) {
    return self->capture.open(path, kPicoseconds, self->ports(), false, static_cast<Frames>(frames));
}
void vs_capture_close(Switch *self) { self->capture.close(); }
void vs_capture_flush(Switch *self) { self->capture.flush(); }
}
