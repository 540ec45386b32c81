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

class World {
public:
    explicit World(double clock_hz = 156.25e6) : map(report), wire(report, capture), clock_hz_(clock_hz) {}

    Report report;
    Capture capture;
    MemoryMap map;
    Wire wire;

    void add_adapter(std::unique_ptr<Engine> engine, uint32_t owned = kOwnAll);
    int adapters() const { return static_cast<int>(adapters_.size()); }
    Adapter &adapter(int index) { return *adapters_[static_cast<size_t>(index)]; }
    void reseed(uint64_t seed);

    // One cycle of everything.
    void step();
    // The two halves of it, for who clocks engines otherwise: between them lies the rising edge.
    void before_edge();
    void after_edge();

    // Until one of `events`, at most; an event that is pending since an earlier call stops at once. Returns the cycles that went by.
    uint64_t advance(uint64_t cycles, uint32_t events);

    // One register access. False if it takes more cycles than `limit`.
    bool write32(int index, uint32_t address, uint32_t value, uint32_t limit);
    bool read32(int index, uint32_t address, uint32_t limit);

    // Nothing on the wire, on a bus or in a memory's queue. What goes on inside the engines they must say themselves.
    bool idle() const;
    double clock_hz() const { return clock_hz_; }
    bool trace_open(const std::string &prefix);
    void trace_close();

private:
    bool finish(AxiLite &registers, uint32_t limit);

    std::vector<std::unique_ptr<Adapter>> adapters_;
    const double clock_hz_;
    bool tracing_ = false;
};

}  // namespace verbena
