#include "engine_verilated.h"

#include <cstring>

// Verilator writes the second underscore of `axi__arvalid` as its code.
#define PORT(group, name) group##___05F##name

namespace verbena {

const int kEngineBytes = VERBENA_DATA_WIDTH / 8;
const bool kEngineTraces = VERBENA_TRACE;

namespace {

constexpr size_t kBytes = VERBENA_DATA_WIDTH / 8;
constexpr uint32_t kAddressMask = static_cast<uint32_t>((uint64_t{1} << VERBENA_ADDRESS_WIDTH) - 1);

constexpr unsigned log2(size_t value) { return value <= 1 ? 0 : 1 + log2(value / 2); }

// PacketBeat (hdl/stream/packet.py), from its least significant bit: data, count, first, last, error. Verilator keeps a signal of any width in
// little-endian words, so its bytes are those of memory.
constexpr unsigned kCountBits = log2(kBytes) + 1;

template <typename Signal>
void unpack(const Signal &signal, Beat &beat) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(&signal);
    static_assert(sizeof signal >= kBytes + 2);
    std::memcpy(beat.data, bytes, kBytes);
    const unsigned tail = bytes[kBytes] | static_cast<unsigned>(bytes[kBytes + 1]) << 8;
    beat.count = tail & ((1u << kCountBits) - 1);
    beat.first = tail >> kCountBits & 1;
    beat.last = tail >> (kCountBits + 1) & 1;
    beat.error = tail >> (kCountBits + 2) & 1;
}

template <typename Signal>
void pack(const Beat &beat, Signal &signal) {
    auto *bytes = reinterpret_cast<uint8_t *>(&signal);
    const unsigned tail = beat.count | static_cast<unsigned>(beat.first) << kCountBits |
                          static_cast<unsigned>(beat.last) << (kCountBits + 1) |
                          static_cast<unsigned>(beat.error) << (kCountBits + 2);
    std::memcpy(bytes, beat.data, kBytes);
    bytes[kBytes] = static_cast<uint8_t>(tail);
    bytes[kBytes + 1] = static_cast<uint8_t>(tail >> 8);
}

}  // namespace

VerilatedEngine::VerilatedEngine(std::unique_ptr<VerilatedContext> context, const char *name)
    : context_(std::move(context)) {
    VerilatedContext *used = context_ ? context_.get() : Verilated::threadContextp();
    // Without it each model would have a pool of threads, which have nothing to do, and for which a forked child, that has none, would wait at its end.
    if (context_) used->threads(1);
    // What is undefined (a read of a row of block RAM that is being written) is neither zero nor the right value.
    used->randReset(2);
    used->randSeed(1);
#if VERBENA_TRACE
    used->traceEverOn(true);
#endif
    model_ = std::make_unique<VERBENA_MODEL>(used, name);
}

VerilatedEngine::~VerilatedEngine() {
    trace_close();
    model_->final();
    // A model takes leave of the context that its thread used last, which may be gone.
    Verilated::threadContextp(model_->contextp());
}

void VerilatedEngine::sample(Outputs &outputs) {
    const VERBENA_MODEL &m = *model_;
    outputs.reset = m.rst;
    outputs.interrupt = m.__SYM__interrupt;  // Verilator renames what is a word of some C++ compilers

    outputs.ar = {.valid = m.PORT(axi, arvalid) != 0, .id = m.PORT(axi, arid), .address = m.PORT(axi, araddr), .length = m.PORT(axi, arlen),
                  .size = m.PORT(axi, arsize), .burst = m.PORT(axi, arburst)};
    outputs.aw = {.valid = m.PORT(axi, awvalid) != 0, .id = m.PORT(axi, awid), .address = m.PORT(axi, awaddr), .length = m.PORT(axi, awlen),
                  .size = m.PORT(axi, awsize), .burst = m.PORT(axi, awburst)};
    outputs.w.valid = m.PORT(axi, wvalid);
    if (outputs.w.valid) {
        outputs.w.last = m.PORT(axi, wlast);
        outputs.w.strobe = m.PORT(axi, wstrb);
        std::memcpy(outputs.w.data, &m.PORT(axi, wdata), kBytes);
    }
    outputs.rready = m.PORT(axi, rready);
    outputs.bready = m.PORT(axi, bready);

    outputs.l_awready = m.PORT(axil, awready);
    outputs.l_wready = m.PORT(axil, wready);
    outputs.l_arready = m.PORT(axil, arready);
    outputs.l_bvalid = m.PORT(axil, bvalid);
    outputs.l_bresp = m.PORT(axil, bresp);
    outputs.l_rvalid = m.PORT(axil, rvalid);
    outputs.l_rresp = m.PORT(axil, rresp);
    outputs.l_rdata = m.PORT(axil, rdata);

    outputs.tx.valid = m.PORT(tx, valid);
    if (outputs.tx.valid) unpack(m.PORT(tx, payload), outputs.tx);
    outputs.rx_ready = m.PORT(rx, ready);
}

void VerilatedEngine::apply(const Inputs &inputs, uint32_t owned) {
    VERBENA_MODEL &m = *model_;
    if (owned & kOwnReset) m.rst = inputs.reset;
    if (owned & kOwnMemory) {
        const AxiInputs &axi = inputs.axi;
        m.PORT(axi, arready) = axi.arready;
        m.PORT(axi, awready) = axi.awready;
        m.PORT(axi, wready) = axi.wready;
        m.PORT(axi, rvalid) = axi.rvalid;
        if (axi.rvalid) {
            m.PORT(axi, rid) = static_cast<CData>(axi.rid);
            m.PORT(axi, rresp) = static_cast<CData>(axi.rresp);
            m.PORT(axi, rlast) = axi.rlast;
            std::memcpy(&m.PORT(axi, rdata), axi.rdata, kBytes);
        }
        m.PORT(axi, bvalid) = axi.bvalid;
        m.PORT(axi, bid) = static_cast<CData>(axi.bid);
        m.PORT(axi, bresp) = static_cast<CData>(axi.bresp);
    }
    if (owned & kOwnRegisters) {
        const AxiLiteInputs &axil = inputs.axil;
        m.PORT(axil, awvalid) = axil.awvalid;
        m.PORT(axil, awaddr) = axil.awaddr & kAddressMask;
        m.PORT(axil, wvalid) = axil.wvalid;
        m.PORT(axil, wdata) = axil.wdata;
        m.PORT(axil, wstrb) = 0xF;
        m.PORT(axil, bready) = axil.bready;
        m.PORT(axil, arvalid) = axil.arvalid;
        m.PORT(axil, araddr) = axil.araddr & kAddressMask;
        m.PORT(axil, rready) = axil.rready;
    }
    if (owned & kOwnWire) {
        m.link = inputs.wire.link;
        m.PORT(tx, ready) = inputs.wire.tx_ready;
        m.PORT(rx, valid) = inputs.wire.rx.valid;
        if (inputs.wire.rx.valid) pack(inputs.wire.rx, m.PORT(rx, payload));
    }
}

void VerilatedEngine::rise() {
    model_->clk = 1;
    model_->eval();
}

void VerilatedEngine::fall(const Inputs &inputs) {
    apply(inputs, kOwnAll);
    model_->clk = 0;
    model_->eval();
}

#if VERBENA_TRACE
bool VerilatedEngine::trace_open(const std::string &path) {
    trace_close();
    trace_ = std::make_unique<VerilatedVcdC>();
    trace_->set_time_unit("1ps");
    trace_->set_time_resolution("1ps");
    model_->trace(trace_.get(), 99);
    trace_->open(path.c_str());
    return trace_->isOpen();
}

void VerilatedEngine::trace_dump(uint64_t picoseconds) {
    if (trace_) trace_->dump(picoseconds);
}

void VerilatedEngine::trace_close() {
    if (trace_) trace_->close();
    trace_ = nullptr;
}
#else
bool VerilatedEngine::trace_open(const std::string &) { return false; }
void VerilatedEngine::trace_dump(uint64_t) {}
void VerilatedEngine::trace_close() {}
#endif

std::unique_ptr<Engine> make_engine(int index) {
    const std::string name = "adapter" + std::to_string(index);
    return std::make_unique<VerilatedEngine>(std::make_unique<VerilatedContext>(), name.c_str());
}

}  // namespace verbena
