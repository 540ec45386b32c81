// One compiled engine, whatever compiled it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "signals.h"

namespace verbena {

class Engine {
public:
    virtual ~Engine() = default;

    // Between two edges, all settled.
    virtual void sample(Outputs &outputs) = 0;
    // The rising edge.
    virtual void rise() = 0;
    // Inputs change after the edge, the clock falls, all settles.
    virtual void fall(const Inputs &inputs) = 0;

    virtual bool trace_open(const std::string &path) = 0;
    virtual void trace_dump(uint64_t picoseconds) = 0;
    virtual void trace_close() = 0;
};

// The parts of the world that drive an engine's inputs; the others are left to a test bench.
enum Owned : uint32_t { kOwnMemory = 1, kOwnRegisters = 2, kOwnWire = 4, kOwnReset = 8, kOwnAll = 15 };

std::unique_ptr<Engine> make_engine(int index);

// Of the engine that is compiled in.
extern const int kEngineBytes;
extern const bool kEngineTraces;

}  // namespace verbena
