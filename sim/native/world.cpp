#include "world.h"

#include <algorithm>
#include <cmath>

namespace verbena {

namespace {

// Cycles of a call for which it pays to wake the helper.
constexpr uint64_t kLong = 64;

}  // namespace

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
        const uint32_t interrupt = a.outputs.interrupt;
        a.engine->sample(a.outputs);
        if (a.outputs.interrupt & ~interrupt) report.events |= kInterrupt;
        if (a.owned & kOwnMemory) a.memory.step(a.outputs);
        if (a.owned & kOwnRegisters) a.registers.step(a.outputs);
        if (a.owned & kOwnWire) wire.step(i, a.outputs);
    }
    wire.step_taps();
    if (link_) wire.step_link(link_port_, clock_.time(report.cycle));
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

void World::clock(int first) {
    for (int i = first; i < adapters(); i += 2) {
        adapter(i).engine->rise();
        adapter(i).engine->fall(adapter(i).inputs);
    }
}

void World::set_helper(bool on) {
    helper_.reset();
    if (on && adapters() > 1) helper_ = std::make_unique<Helper>([this] { clock(1); });
}

void World::step() {
    before_edge();
    if (helper_ && !tracing_ && helper_->awake()) {
        helper_->offer();
        clock(0);
        helper_->finish();
        report.cycle++;
        return;
    }
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
    Patience patience(wait_);
    if (helper_ && cycles >= kLong) helper_->wake();
    while (report.cycle - start < cycles && (report.events & events) == 0) {
        if (report.cycle >= checkpoint_ && !meet(patience)) {
            report.events |= kWaits;
            break;
        }
        step();
    }
    return report.cycle - start;
}

Access World::resume(int index) {
    AxiLite &registers = adapter(index).registers;
    Patience patience(wait_);
    while (access_left_ > 0) {
        if (report.cycle >= checkpoint_ && !meet(patience)) return Access::kWaits;
        step();
        access_left_--;
        if (!registers.busy()) return Access::kDone;
    }
    registers.reset();
    return Access::kUnanswered;
}

Access World::write32(int index, uint32_t address, uint32_t value, uint32_t limit) {
    adapter(index).registers.start_write(address, value);
    access_left_ = limit;
    return resume(index);
}

Access World::read32(int index, uint32_t address, uint32_t limit) {
    adapter(index).registers.start_read(address);
    access_left_ = limit;
    return resume(index);
}

void World::attach(const LinkSettings &settings) {
    link_ = std::make_unique<Link>(settings);
    link_port_ = wire.add(0, link_.get()).index;
    checkpoint_ = report.cycle;
}

void World::detach() {
    if (!link_) return;
    link_->terminate();
    link_down();
}

void World::link_down() {
    wire.port(link_port_).inputs.link = false;
    // The cable's other end is open.
    for (int i = 0; i < adapters(); i++) wire.port(i).inputs.link = false;
    checkpoint_ = kNever;
    report.events |= kLink;
}

// What arrives in the next cycle is put before the adapters in this one: both must be known.
bool World::meet(Patience &patience) {
    patience.renew();
    const uint64_t now = clock_.time(report.cycle);
    const uint64_t needed = clock_.time(report.cycle + 1);
    LinkMessage message;
    for (;;) {
        const bool sent = link_->flush();
        link_->sync(now);
        while (link_->peek(message) && message.time <= needed) {
            if (message.frame) wire.arrive(link_port_, {message.data, message.data + message.size}, clock_.cycle(message.time));
            link_->release();
        }
        if (link_->state() != LinkState::kUp) {
            link_down();
            return true;
        }
        const uint64_t horizon = link_->horizon();
        if (sent && horizon > needed) {
            // The last cycle that this horizon allows is the one before it.
            checkpoint_ = std::min(clock_.cycle(horizon) - 1, clock_.cycle(link_->sync_due()));
            return true;
        }
        link_->sync(now, true);
        if (patience.exhausted()) return false;
        Link::await({link_.get()}, patience);
        if (patience.may_look()) link_->look();
    }
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
