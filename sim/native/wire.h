// The wire: a switch with any number of ports. The first belong to adapters, the rest are taps, whose owner is the program.
//
// Towards an adapter a frame is cut through: each beat leaves one cycle after it came, plus the delay of the wire, as long as the sender's faults are
// not armed. With faults armed the frame is stored first, so that a fault can change all of it. Frames that do not yet fit on a port's line wait in the
// switch, which never drops. A port may lead to another simulator over a link: whole, undamaged frames cross it, and bring their cycle along. Paced, a frame of n bytes occupies a line for max(n, 60) + 24 bytes (preamble, FCS, gap) in both directions, so a
// 64-bit bus at 156.25 MHz is a 10 Gb/s line; FCS and preamble themselves are not modelled, `error` in the last beat stands for a wrong FCS.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "capture.h"
#include "faults.h"
#include "link.h"
#include "report.h"
#include "signals.h"

namespace verbena {

using Mac = std::array<uint8_t, 6>;

struct Frame {
    std::vector<uint8_t> data;
    bool complete = false;
    bool error = false;
    std::string comment;
};

using FramePointer = std::shared_ptr<Frame>;

struct WireSettings {
    bool paced = true;
    uint32_t delay = 0;  // cycles beyond the one that the switch takes
    double stall = 0;    // probability, each cycle, that an adapter's transmit stream is held back
    bool store = false;  // a frame goes on when its last beat has come, as over a link
};

class Port {
public:
    // Of an adapter, `bytes` wide; a tap has 0, and so has a port that leads to a link.
    Port(int index, int bytes, Link *link) : index(index), bytes(bytes), link(link) {}

    const int index;
    const int bytes;
    Link *const link;
    Mac mac{};
    FaultInjector faults;
    WireInputs inputs;  // for the next cycle
    std::deque<FramePointer> received;  // of a tap
    uint64_t sent_frames = 0, sent_bytes = 0, received_frames = 0, received_bytes = 0;

private:
    friend class Wire;

    struct Delivery {
        FramePointer frame;
        uint64_t due;
        size_t offset = 0;
    };

    FramePointer sending;
    bool routed = false;
    Beat held;                    // offered and not taken in the last cycle
    uint64_t tx_start = 0;        // in byte times since reset
    uint64_t tx_free = 0;
    uint64_t rx_start = 0;
    uint64_t rx_free = 0;
    uint64_t last_due = 0;
    std::deque<Delivery> queue;   // towards the owner, by due time
    bool delivering = false;      // the head of the queue has begun
};

class Wire {
public:
    Wire(Report &report, Capture &capture) : report_(report), capture_(capture) {}

    WireSettings settings;

    Port &add(int bytes, Link *link = nullptr);
    Port &port(int index) { return *ports_[static_cast<size_t>(index)]; }
    int ports() const { return static_cast<int>(ports_.size()); }
    void reseed(uint64_t seed);

    // A frame that a tap sends into the switch.
    void send(int tap, std::vector<uint8_t> data, bool error);
    // A frame straight into an adapter, past switch and faults.
    void inject(int adapter, std::vector<uint8_t> data, bool error);
    // A frame that a port's link brings; adapters get it in this cycle.
    void arrive(int port, std::vector<uint8_t> data, uint64_t cycle);
    bool idle() const;

    // In each cycle: what every adapter sends, then what reaches the taps and the link, then what reaches every adapter.
    void step(int adapter, const Outputs &outputs);
    void step_taps();
    void step_link(int port, uint64_t now);
    void receive(int adapter, const Outputs &outputs) {
        if (!outputs.reset) receive(port(adapter), outputs);
    }

private:
    void transmit(Port &port, const Outputs &outputs);
    void receive(Port &port, const Outputs &outputs);
    void finish(Port &source, const FramePointer &frame);
    void route(Port &source, const Mac &mac, const FramePointer &frame, uint64_t at, bool overtaken);
    void deliver(Port &destination, const FramePointer &frame, uint64_t due, bool overtaken);
    uint64_t occupied(const Frame &frame) const { return std::max<uint64_t>(frame.data.size(), 60) + 24; }

    Report &report_;
    Capture &capture_;
    Random random_;
    std::vector<std::unique_ptr<Port>> ports_;
};

}  // namespace verbena
