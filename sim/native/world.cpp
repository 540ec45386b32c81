#include "world.h"

#include <cmath>

namespace verbena {

void World::add_adapter(std::unique_ptr<Engine> engine, uint32_t owned) {
    const int index = adapters();
    adapters_.push_back(std::make_unique<Adapter>(index, std::move(engine), owned, map, report, capture));
    wire.add(kEngineBytes);
    adapters_.back()->engine->fall(adapters_.back()->inputs);
}

void World::reseed(uint64_t seed) {
    for (auto &adapter : adapters_) adapter->memory.reseed(seed);
    wire.reseed(seed);
}

void World::before_edge() {
    for (int i = 0; i < adapters(); i++) {
        Adapter &a = adapter(i);
        const bool interrupt = a.outputs.interrupt;
        a.engine->sample(a.outputs);
        if (a.outputs.interrupt && !interrupt) report.events |= kInterrupt;
        if (a.owned & kOwnMemory) a.memory.step(a.outputs);
        if (a.owned & kOwnRegisters) a.registers.step(a.outputs);
        if (a.owned & kOwnWire) wire.step(i, a.outputs);
    }
    wire.step_taps();
    // After all adapters: what one sends in a cycle, another gets in the next, whichever is the first.
    for (int i = 0; i < adapters(); i++) {
        Adapter &a = adapter(i);
        if (a.owned & kOwnWire) wire.receive(i, a.outputs);
        a.inputs.reset = a.reset_cycles > 0;
        if (a.reset_cycles > 0) a.reset_cycles--;
        a.inputs.axi = a.memory.inputs;
        a.inputs.axil = a.registers.inputs;
        a.inputs.wire = wire.port(i).inputs;
    }
}

void World::after_edge() {
    for (auto &adapter : adapters_) adapter->engine->fall(adapter->inputs);
    report.cycle++;
}

void World::step() {
    before_edge();
    for (auto &adapter : adapters_) adapter->engine->rise();
    if (tracing_) {
        const auto time = static_cast<uint64_t>(std::llround(static_cast<double>(report.cycle) * 1e12 / clock_hz_));
        const auto half = static_cast<uint64_t>(0.5e12 / clock_hz_);
        for (auto &adapter : adapters_) adapter->engine->trace_dump(time);
        after_edge();
        for (auto &adapter : adapters_) adapter->engine->trace_dump(time + half);
        return;
    }
    after_edge();
}

uint64_t World::advance(uint64_t cycles, uint32_t events) {
    events |= kViolation;
    const uint64_t start = report.cycle;
    while (report.cycle - start < cycles && (report.events & events) == 0) step();
    return report.cycle - start;
}

bool World::finish(AxiLite &registers, uint32_t limit) {
    for (uint32_t i = 0; i < limit; i++) {
        step();
        if (!registers.busy()) return true;
    }
    registers.reset();
    return false;
}

bool World::write32(int index, uint32_t address, uint32_t value, uint32_t limit) {
    AxiLite &registers = adapter(index).registers;
    registers.start_write(address, value);
    return finish(registers, limit);
}

bool World::read32(int index, uint32_t address, uint32_t limit) {
    AxiLite &registers = adapter(index).registers;
    registers.start_read(address);
    return finish(registers, limit);
}

bool World::idle() const {
    if (!wire.idle()) return false;
    for (const auto &adapter : adapters_)
        if (!adapter->memory.idle() || adapter->registers.busy()) return false;
    return true;
}

bool World::trace_open(const std::string &prefix) {
    if (!kEngineTraces) return false;
    for (int i = 0; i < adapters(); i++)
        if (!adapter(i).engine->trace_open(prefix + "." + std::to_string(i) + ".vcd")) return false;
    return tracing_ = true;
}

void World::trace_close() {
    for (auto &adapter : adapters_) adapter->engine->trace_close();
    tracing_ = false;
}

}  // namespace verbena
