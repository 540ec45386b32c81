// The host's side of AXI4-Lite: one register access at a time, through the real handshakes.
#pragma once

#include <cstdint>

#include "capture.h"
#include "report.h"
#include "signals.h"

namespace verbena {

class AxiLite {
public:
    AxiLite(int adapter, Report &report, Capture &capture) : adapter_(adapter), report_(report), capture_(capture) {}

    AxiLiteInputs inputs;  // for the next cycle

    // The request goes to the engine in the next cycle.
    void start_write(uint32_t address, uint32_t value) { start(address, value, true); }
    void start_read(uint32_t address) { start(address, 0, false); }

    bool busy() const { return busy_; }
    uint32_t response() const { return response_; }
    uint32_t value() const { return value_; }

    // Give up on an access that is not answered.
    void reset() {
        inputs = AxiLiteInputs{};
        busy_ = starting_ = held_b_ = held_r_ = false;
    }

    void step(const Outputs &outputs) {
        // An access that is started in reset waits for its end.
        if (outputs.reset) return;
        check(outputs);
        if (!busy_) return;
        if (starting_) return offer();
        if (inputs.awvalid && outputs.l_awready) inputs.awvalid = false;
        if (inputs.wvalid && outputs.l_wready) inputs.wvalid = false;
        if (inputs.arvalid && outputs.l_arready) inputs.arvalid = false;
        if (inputs.bready && outputs.l_bvalid) finish(outputs.l_bresp, value_);
        if (inputs.rready && outputs.l_rvalid) finish(outputs.l_rresp, outputs.l_rdata);
    }

private:
    void start(uint32_t address, uint32_t value, bool write) {
        busy_ = starting_ = true;
        write_ = write;
        address_ = address;
        value_ = value;
        start_ = report_.cycle;
    }

    void offer() {
        starting_ = false;
        if (write_) {
            inputs.awvalid = inputs.wvalid = inputs.bready = true;
            inputs.awaddr = address_;
            inputs.wdata = value_;
        } else {
            inputs.arvalid = inputs.rready = true;
            inputs.araddr = address_;
        }
    }

    void finish(uint32_t response, uint32_t value) {
        response_ = response;
        value_ = value;
        busy_ = false;
        inputs.bready = inputs.rready = false;
        if (capture_.wants_bus())
            capture_.bus(adapter_, {.mmio = true,
                                    .write = write_,
                                    .response = response,
                                    .address = address_,
                                    .start = start_,
                                    .cycle = report_.cycle,
                                    .data = reinterpret_cast<const uint8_t *>(&value_),
                                    .length = 4});
    }

    // AXI4-Lite (IHI 0022) A3.3.1: an answer follows its request, and stays until it is taken.
    void check(const Outputs &outputs) {
        if (held_b_ && !outputs.l_bvalid) report_.violation(adapter_, "AXI-Lite B withdrawn before it was taken");
        if (held_r_ && !outputs.l_rvalid) report_.violation(adapter_, "AXI-Lite R withdrawn before it was taken");
        held_b_ = outputs.l_bvalid && !inputs.bready;
        held_r_ = outputs.l_rvalid && !inputs.rready;
        if (outputs.l_bvalid && (!inputs.bready || inputs.awvalid || inputs.wvalid))
            report_.violation(adapter_, "AXI-Lite B without a write");
        if (outputs.l_rvalid && (!inputs.rready || inputs.arvalid))
            report_.violation(adapter_, "AXI-Lite R without a read");
    }

    const int adapter_;
    Report &report_;
    Capture &capture_;
    bool busy_ = false, starting_ = false, write_ = false, held_b_ = false, held_r_ = false;
    uint32_t address_ = 0, value_ = 0, response_ = 0;
    uint64_t start_ = 0;
};

}  // namespace verbena
