// The simulated world: adapters, each an engine with its host bus, on one wire, in lock step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axi_lite.h"
#include "axi_memory.h"
#include "capture.h"
#include "engine.h"
#include "helper.h"
#include "link.h"
#include "memory_map.h"
#include "report.h"
#include "wire.h"

namespace verbena {

struct Adapter {
    Adapter(int index, std::unique_ptr<Engine> of, uint32_t parts, MemoryMap &map, Report &report, Capture &capture)
        : engine(std::move(of)),
          owned(parts),
          memory(index, kEngineBytes, map, report, capture),
          registers(index, report, capture) {}

    std::unique_ptr<Engine> engine;
    const uint32_t owned;  // a sum of Owned: what the world drives
    AxiMemory memory;
    AxiLite registers;
    Outputs outputs;
    Inputs inputs;
    uint32_t reset_cycles = 8;
};

enum class Access { kDone, kUnanswered, kWaits };

class World {
public:
    explicit World(double clock_hz = 156.25e6) : map(report), wire(report, capture), clock_hz_(clock_hz), clock_(clock_hz) {}

    Report report;
    Capture capture;
    MemoryMap map;
    Wire wire;

    // The wire leads to another simulator from now on. The world takes part in its time, and never runs ahead of what the peer has promised.
    void attach(const LinkSettings &settings);
    Link *link() { return link_.get(); }
    // Sends what is due to the peer, and ends the link.
    void detach();
    void set_wait(uint32_t milliseconds) { wait_ = milliseconds; }

    void add_adapter(std::unique_ptr<Engine> engine, uint32_t owned = kOwnAll);
    int adapters() const { return static_cast<int>(adapters_.size()); }
    Adapter &adapter(int index) { return *adapters_[static_cast<size_t>(index)]; }
    void reseed(uint64_t seed);
    // Whether a second thread takes part in the engines' cycles.
    void set_helper(bool on);

    // One cycle of everything.
    void step();
    // The two halves of it, for who clocks engines otherwise: between them lies the rising edge.
    void before_edge();
    void after_edge();

    // Until one of `events`, at most; an event that is pending since an earlier call stops at once. Returns the cycles that went by. A world with a
    // link also stops, with the event kWaits, once it has waited for its peer for as long as `set_wait` said.
    uint64_t advance(uint64_t cycles, uint32_t events);

    // One register access, of at most `limit` cycles.
    Access write32(int index, uint32_t address, uint32_t value, uint32_t limit);
    Access read32(int index, uint32_t address, uint32_t limit);
    // Goes on with one that waits.
    Access resume(int index);

    // Nothing on the wire, on a bus or in a memory's queue. What goes on inside the engines they must say themselves.
    bool idle() const;
    double clock_hz() const { return clock_hz_; }
    bool trace_open(const std::string &prefix);
    void trace_close();

private:
    // Whether this cycle may pass.
    bool meet(Patience &patience);
    void link_down();
    // The rising and the falling edge of every second engine.
    void clock(int first);

    std::vector<std::unique_ptr<Adapter>> adapters_;
    const double clock_hz_;
    const Clock clock_;
    bool tracing_ = false;
    std::unique_ptr<Link> link_;
    int link_port_ = -1;
    uint64_t checkpoint_ = kNever;  // the cycle before which the link is looked at
    uint32_t wait_ = 50;
    uint32_t access_left_ = 0;
    std::unique_ptr<Helper> helper_;  // the last: it ends first
};

}  // namespace verbena
