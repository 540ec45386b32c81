// The same library under cocotb: the first engine is the one that cocotb sees and clocks by VPI; the world and the engines of further adapters move
// along at each rising edge of its clock. VERBENA_ADAPTERS, VERBENA_OWNED (a sum of Owned), VERBENA_SEED and VERBENA_CAPTURE set it up.

#include <verilated_vpi.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

#include "engine_verilated.h"
#include "world.h"

extern "C" void vlog_startup_routines_bootstrap();

namespace verbena {
void share_world(World *world);
}

using namespace verbena;

namespace {

class VisibleEngine final : public Engine {
public:
    explicit VisibleEngine(uint32_t owned) : engine_(nullptr, ""), owned_(owned) {}

    void sample(Outputs &outputs) override { engine_.sample(outputs); }
    void rise() override {}
    void fall(const Inputs &inputs) override { engine_.apply(inputs, owned_); }
    bool trace_open(const std::string &path) override { return engine_.trace_open(path); }
    void trace_dump(uint64_t picoseconds) override { engine_.trace_dump(picoseconds); }
    void trace_close() override { engine_.trace_close(); }

    VERBENA_MODEL &model() { return engine_.model(); }

private:
    VerilatedEngine engine_;
    const uint32_t owned_;
};

uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = std::getenv(name);
    return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 0);
}

bool value_callbacks() {
    bool any = false;
    while (VerilatedVpi::callValueCbs()) any = true;
    return any;
}

class Simulation {
public:
    explicit Simulation(VerilatedContext *context) : context_(context) {
        const auto owned = static_cast<uint32_t>(setting("VERBENA_OWNED", kOwnMemory | kOwnWire));
        auto engine = std::make_unique<VisibleEngine>(owned);
        visible_ = engine.get();
        world_.add_adapter(std::move(engine), owned);
        for (uint64_t i = 1; i < setting("VERBENA_ADAPTERS", 1); i++) world_.add_adapter(make_engine(static_cast<int>(i)));
        world_.reseed(setting("VERBENA_SEED", 1));
        if (const char *path = std::getenv("VERBENA_CAPTURE")) world_.capture.open(path, world_.clock_hz(), world_.adapters(), true);
        if (const char *path = std::getenv("VERBENA_TRACE")) visible_->trace_open(path);
        share_world(&world_);
        // The contexts of the others have become the thread's, in which VPI looks.
        Verilated::threadContextp(context_);
    }

    ~Simulation() { share_world(nullptr); }

    void run() {
        VerilatedVpi::callCbs(cbStartOfSimulation);
        value_callbacks();
        while (!context_->gotFinish()) {
            settle();
            VerilatedVpi::callCbs(cbReadOnlySynch);
            visible_->trace_dump(context_->time());
            const uint64_t next = VerilatedVpi::cbNextDeadline();
            if (next == ~uint64_t{0}) break;
            context_->time(next);
            VerilatedVpi::callCbs(cbNextSimTime);
            value_callbacks();
            VerilatedVpi::callTimedCbs();
            value_callbacks();
        }
        VerilatedVpi::callCbs(cbEndOfSimulation);
        visible_->trace_close();
    }

private:
    // Until nothing changes any more at this time.
    void settle() {
        do {
            do {
                evaluate();
                VerilatedVpi::clearEvalNeeded();
                VerilatedVpi::doInertialPuts();
                value_callbacks();
            } while (VerilatedVpi::evalNeeded());
            VerilatedVpi::callCbs(cbReadWriteSynch);
            VerilatedVpi::doInertialPuts();
            value_callbacks();
        } while (VerilatedVpi::evalNeeded());
    }

    void evaluate() {
        VERBENA_MODEL &model = visible_->model();
        const bool rising = model.clk != 0 && !clock_;
        clock_ = model.clk != 0;
        if (!rising) return model.eval();
        // Outputs still stand as before the edge: the engine has not yet been evaluated with the new clock.
        world_.before_edge();
        model.eval();
        for (int i = 1; i < world_.adapters(); i++) world_.adapter(i).engine->rise();
        world_.after_edge();
        Verilated::threadContextp(context_);
        model.eval();
    }

    VerilatedContext *const context_;
    World world_;
    VisibleEngine *visible_ = nullptr;
    bool clock_ = false;
};

}  // namespace

int main(int argc, char **argv) {
    VerilatedContext *context = Verilated::threadContextp();
    context->commandArgs(argc, argv);
    context->fatalOnVpiError(false);
    {
        Simulation simulation(context);
        vlog_startup_routines_bootstrap();
        simulation.run();
    }
    return context->errorCount() > 0 ? 1 : 0;
}
