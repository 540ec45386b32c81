// The C interface that Python reaches by ctypes (sim/library.py declares the same).

#include <cstring>
#include <string>
#include <system_error>

#include "world.h"

using namespace verbena;

namespace {

// Of the simulation that a VPI clocks, if there is one in this process.
World *shared_world = nullptr;

int answer(World *world, int adapter, Access access) {
    if (access == Access::kWaits) return -3;
    if (access == Access::kUnanswered) return -1;
    return static_cast<int>(world->adapter(adapter).registers.response());
}

}  // namespace

namespace verbena {
void share_world(World *world) { shared_world = world; }
}  // namespace verbena

extern "C" {

uint32_t vw_data_bytes() { return static_cast<uint32_t>(kEngineBytes); }
World *vw_shared() { return shared_world; }

World *vw_create(int adapters, double clock_hz, uint64_t seed) {
    auto *world = new World(clock_hz);
    for (int i = 0; i < adapters; i++) world->add_adapter(make_engine(i));
    world->reseed(seed);
    // Out of reset, so that what is sent at once is not lost.
    world->advance(10, 0);
    return world;
}

void vw_destroy(World *world) { delete world; }
int vw_adapters(World *world) { return world->adapters(); }
uint64_t vw_cycle(World *world) { return world->report.cycle; }
uint64_t vw_advance(World *world, uint64_t cycles, uint32_t events) { return world->advance(cycles, events); }
void vw_set_helper(World *world, int on) { world->set_helper(on != 0); }
int vw_idle(World *world) { return world->idle(); }
void vw_seed(World *world, uint64_t seed) { world->reseed(seed); }
void vw_reset(World *world, int adapter, uint32_t cycles) { world->adapter(adapter).reset_cycles = cycles; }
int vw_interrupt(World *world, int adapter) { return static_cast<int>(world->adapter(adapter).outputs.interrupt); }

// What happened since the last call.
uint32_t vw_take_events(World *world) {
    const uint32_t events = world->report.events;
    world->report.events = 0;
    return events;
}

// The oldest violation; 0 if there is none.
int vw_take_violation(World *world, char *text, uint32_t size) {
    auto &violations = world->report.violations;
    if (violations.empty()) return 0;
    std::strncpy(text, violations.front().c_str(), size - 1);
    text[size - 1] = 0;
    violations.pop_front();
    return 1;
}

// Registers: 0, or the answer's RRESP or BRESP, or -1 without an answer, or -3 if the link's peer does not come on.
int vw_write32(World *world, int adapter, uint32_t address, uint32_t value, uint32_t limit) {
    return answer(world, adapter, world->write32(adapter, address, value, limit));
}

int vw_read32(World *world, int adapter, uint32_t address, uint32_t *value, uint32_t limit) {
    const Access access = world->read32(adapter, address, limit);
    *value = world->adapter(adapter).registers.value();
    return answer(world, adapter, access);
}

// Goes on with an access that waits for the peer of the link.
int vw_resume(World *world, int adapter, uint32_t *value) {
    const Access access = world->resume(adapter);
    *value = world->adapter(adapter).registers.value();
    return answer(world, adapter, access);
}

// The same in steps, for who cannot let the world run: start, then ask until it is no longer busy (-2).
void vw_start_write(World *world, int adapter, uint32_t address, uint32_t value) {
    world->adapter(adapter).registers.start_write(address, value);
}

void vw_start_read(World *world, int adapter, uint32_t address) {
    world->adapter(adapter).registers.start_read(address);
}

int vw_access_result(World *world, int adapter, uint32_t *value) {
    const AxiLite &registers = world->adapter(adapter).registers;
    if (registers.busy()) return -2;
    *value = registers.value();
    return static_cast<int>(registers.response());
}

int vw_add_window(World *world, uint64_t bus, void *host, uint64_t size, uint64_t mask) {
    return world->map.add({.bus = bus, .size = size, .mask = mask, .host = static_cast<uint8_t *>(host)});
}

int vw_remove_window(World *world, uint64_t bus) { return world->map.remove(bus); }
void *vw_find(World *world, uint64_t bus) { return world->map.find(bus); }
int vw_watch(World *world, const void *host, uint64_t size) {
    return world->map.watch(static_cast<const uint8_t *>(host), size);
}
int vw_unwatch(World *world, int id) { return world->map.unwatch(id); }

void vw_memory_settings(World *world, int adapter, const MemorySettings *settings) {
    world->adapter(adapter).memory.settings = *settings;
}

void vw_answer_silent(World *world, int adapter) { world->adapter(adapter).memory.answer_silent(); }

// read bursts, write bursts, read beats, write beats, decode errors
void vw_memory_counters(World *world, int adapter, uint64_t *counters) {
    const AxiMemory &memory = world->adapter(adapter).memory;
    const uint64_t values[] = {memory.read_bursts, memory.write_bursts, memory.read_beats, memory.write_beats, memory.decode_errors};
    std::memcpy(counters, values, sizeof values);
}

void vw_wire_settings(World *world, const WireSettings *settings) { world->wire.settings = *settings; }

int vw_add_tap(World *world) {
    Port &port = world->wire.add(0);
    return port.index;
}

// Pulls the cable of a port, or plugs it in: frames on their way still arrive.
void vw_link(World *world, int port, int up) { world->wire.port(port).inputs.link = up != 0; }

void vw_port_mac(World *world, int port, const uint8_t *mac) {
    std::memcpy(world->wire.port(port).mac.data(), mac, 6);
}

// sent frames, sent bytes, received frames, received bytes
void vw_port_counters(World *world, int index, uint64_t *counters) {
    const Port &port = world->wire.port(index);
    const uint64_t values[] = {port.sent_frames, port.sent_bytes, port.received_frames, port.received_bytes};
    std::memcpy(counters, values, sizeof values);
}

void vw_faults(World *world, int port, const FaultSettings *settings) {
    world->wire.port(port).faults.settings = *settings;
}

// False if the frame has been sent already.
int vw_fault_at(World *world, int port, uint64_t number, int fault) {
    Port &p = world->wire.port(port);
    if (number < p.sent_frames || fault >= kFaults) return 0;
    p.faults.script(number, static_cast<Fault>(fault));
    return 1;
}

void vw_fault_counters(World *world, int port, uint64_t *counters) {
    std::memcpy(counters, world->wire.port(port).faults.counters, sizeof world->wire.port(port).faults.counters);
}

void vw_send(World *world, int tap, const uint8_t *data, uint32_t size, int error) {
    world->wire.send(tap, {data, data + size}, error != 0);
}

void vw_inject(World *world, int adapter, const uint8_t *data, uint32_t size, int error) {
    world->wire.inject(adapter, {data, data + size}, error != 0);
}

// The size of the oldest frame that a tap holds, or -1; with room for it, it is copied and taken.
int64_t vw_receive(World *world, int tap, uint8_t *data, uint32_t room, int *error) {
    auto &received = world->wire.port(tap).received;
    if (received.empty()) return -1;
    const FramePointer frame = received.front();
    if (frame->data.size() <= room) {
        std::memcpy(data, frame->data.data(), frame->data.size());
        *error = frame->error;
        received.pop_front();
    }
    return static_cast<int64_t>(frame->data.size());
}

// The wire leads to another simulator; False if its memory cannot be mapped. The descriptors are the world's from now on.
int vw_attach(World *world, const LinkSettings *settings) {
    try {
        world->attach(*settings);
    } catch (const std::system_error &) {
        return 0;
    }
    return 1;
}

void vw_detach(World *world) { world->detach(); }
// In a child process: the link stays its parent's. Nothing else is done with the world from then on.
void vw_abandon(World *world) {
    if (world->link() != nullptr) world->link()->abandon();
    world->capture.abandon();
}
void vw_set_wait(World *world, uint32_t milliseconds) { world->set_wait(milliseconds); }
// A LinkState, or -1 without a link.
int vw_link_state(World *world) { return world->link() == nullptr ? -1 : static_cast<int>(world->link()->state()); }

int vw_capture_open(World *world, const char *path, int bus, int frames) {
    return world->capture.open(path, world->clock_hz(), world->adapters(), bus != 0, static_cast<Frames>(frames));
}
void vw_capture_close(World *world) { world->capture.close(); }
void vw_capture_flush(World *world) { world->capture.flush(); }
int vw_trace_open(World *world, const char *prefix) { return world->trace_open(prefix); }
void vw_trace_close(World *world) { world->trace_close(); }
}
