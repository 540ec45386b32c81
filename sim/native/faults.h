// What the wire does to frames, decided by a seed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "random.h"

namespace verbena {

enum Fault : int { kLose, kDuplicate, kReorder, kCorrupt, kDelay, kDamage, kFaults };

// For the frames that one port sends.
struct FaultSettings {
    double probability[kFaults] = {};  // in the order of Fault
    uint32_t reorder_cycles = 2000;    // a reordered frame is up to so late, and others overtake it
    uint32_t delay_cycles = 2000;      // a delayed frame is up to so late, and those behind it wait
};

struct Decision {
    bool is[kFaults] = {};
    uint32_t reorder_by = 0;
    uint32_t delay_by = 0;
    uint64_t flips = 0;  // seeds the choice of bits to flip

    std::string text() const {
        static const char *const names[] = {"lost", "duplicated", "reordered", "corrupted", "delayed", "damaged"};
        std::string result;
        for (int i = 0; i < kFaults; i++)
            if (is[i]) result += std::string(result.empty() ? "" : ", ") + names[i];
        return result;
    }
};

class FaultInjector {
public:
    FaultSettings settings;
    uint64_t counters[kFaults] = {};

    void reseed(uint64_t seed, uint64_t stream) { random_.reseed(seed, 0x200 + stream); }

    // Do this to the frame of this number (from 0, of the port), whatever the probabilities say.
    void script(uint64_t number, Fault fault) { scripted_[number].push_back(fault); }

    bool armed() const {
        for (const double p : settings.probability)
            if (p > 0) return true;
        return !scripted_.empty();
    }

    Decision decide(uint64_t number) {
        Decision decision;
        // As many draws for every frame: arming one fault does not move the others.
        for (int i = 0; i < kFaults; i++) decision.is[i] = random_.chance(settings.probability[i]);
        decision.reorder_by = 1 + random_.below(settings.reorder_cycles);
        decision.delay_by = 1 + random_.below(settings.delay_cycles);
        decision.flips = random_.next();
        if (auto found = scripted_.find(number); found != scripted_.end()) {
            for (const Fault fault : found->second) decision.is[fault] = true;
            // A scripted fault shall be seen: to the full.
            decision.reorder_by = settings.reorder_cycles;
            decision.delay_by = settings.delay_cycles;
            scripted_.erase(found);
        }
        // What is lost has no other faults.
        if (decision.is[kLose])
            for (int i = kLose + 1; i < kFaults; i++) decision.is[i] = false;
        for (int i = 0; i < kFaults; i++) counters[i] += decision.is[i];
        return decision;
    }

    // One to three bits, anywhere.
    static void corrupt(std::vector<uint8_t> &data, uint64_t seed) {
        Random random(seed);
        if (data.empty()) return;
        for (uint32_t n = 1 + random.below(3); n > 0; n--) {
            const uint32_t bit = random.below(static_cast<uint32_t>(data.size()) * 8);
            data[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
        }
    }

private:
    Random random_;
    std::map<uint64_t, std::vector<Fault>> scripted_;
};

}  // namespace verbena
