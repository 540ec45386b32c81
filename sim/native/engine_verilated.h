// The engine, compiled by Verilator. VERBENA_MODEL is the class, VERBENA_HEADER its header, VERBENA_DATA_WIDTH and VERBENA_ADDRESS_WIDTH its parameters.
#pragma once

#include <verilated.h>
#if VERBENA_TRACE
#include <verilated_vcd_c.h>
#endif

#include VERBENA_HEADER
#include "engine.h"

namespace verbena {

class VerilatedEngine final : public Engine {
public:
    // `context` is owned, or null to take the thread's (that of a simulation's VPI).
    VerilatedEngine(std::unique_ptr<VerilatedContext> context, const char *name);
    ~VerilatedEngine() override;

    void sample(Outputs &outputs) override;
    void rise() override;
    void fall(const Inputs &inputs) override;
    bool trace_open(const std::string &path) override;
    void trace_dump(uint64_t picoseconds) override;
    void trace_close() override;

    void apply(const Inputs &inputs, uint32_t owned);

    VERBENA_MODEL &model() { return *model_; }

private:
    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<VERBENA_MODEL> model_;
#if VERBENA_TRACE
    std::unique_ptr<VerilatedVcdC> trace_;
#endif
};

}  // namespace verbena
