// The engine's ports as plain numbers, the same for every width of the datapath.
#pragma once

#include <cstdint>
#include <cstring>

namespace verbena {

constexpr int kMaxBytes = 64;  // of one beat: 512 bits

struct AxiAddress {
    bool valid = false;
    uint32_t id = 0;
    uint64_t address = 0;
    uint32_t length = 0;  // beats - 1
    uint32_t size = 0;    // log2 of the bytes of a beat
    uint32_t burst = 0;   // 0 FIXED, 1 INCR, 2 WRAP

    bool operator==(const AxiAddress &) const = default;
};

struct AxiWriteData {
    bool valid = false;
    bool last = false;
    uint64_t strobe = 0;
    uint8_t data[kMaxBytes] = {};
};

struct Beat {
    bool valid = false;
    bool first = false;
    bool last = false;
    bool error = false;
    uint32_t count = 0;
    uint8_t data[kMaxBytes] = {};
};

// Driven by the engine.
struct Outputs {
    bool reset = false;
    uint32_t interrupt = 0;  // a bit for each event queue
    AxiAddress ar;
    AxiAddress aw;
    AxiWriteData w;
    bool rready = false;
    bool bready = false;
    bool l_awready = false;
    bool l_wready = false;
    bool l_arready = false;
    bool l_bvalid = false;
    bool l_rvalid = false;
    uint32_t l_bresp = 0;
    uint32_t l_rresp = 0;
    uint32_t l_rdata = 0;
    Beat tx;
    bool rx_ready = false;
};

struct AxiInputs {
    bool arready = false;
    bool awready = false;
    bool wready = false;
    bool rvalid = false;
    bool rlast = false;
    uint32_t rid = 0;
    uint32_t rresp = 0;
    uint8_t rdata[kMaxBytes] = {};
    bool bvalid = false;
    uint32_t bid = 0;
    uint32_t bresp = 0;
};

struct AxiLiteInputs {
    bool awvalid = false;
    bool wvalid = false;
    bool bready = false;
    bool arvalid = false;
    bool rready = false;
    uint32_t awaddr = 0;
    uint32_t araddr = 0;
    uint32_t wdata = 0;
};

struct WireInputs {
    bool link = true;
    bool tx_ready = false;
    Beat rx;
};

// Driven by the world.
struct Inputs {
    bool reset = true;
    AxiInputs axi;
    AxiLiteInputs axil;
    WireInputs wire;
};

}  // namespace verbena
