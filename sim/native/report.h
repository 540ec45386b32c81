// What a model of the world tells the program that runs it: reasons to stop, and broken rules.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace verbena {

enum Event : uint32_t {
    kInterrupt = 1,  // an adapter's interrupt rose
    kWatch = 2,      // an engine wrote to watched memory
    kTap = 4,        // a frame reached a tap
    kViolation = 8,  // an engine broke a rule of its interfaces
    kWaits = 16,     // the other side of the link has not come so far
    kLink = 32,      // the other side of the link is gone
};

struct Report {
    uint64_t cycle = 0;
    uint32_t events = 0;
    std::deque<std::string> violations;

    void violation(int adapter, const std::string &text) {
        events |= kViolation;
        // A broken interface breaks its rules each cycle: the first few say it all.
        if (violations.size() < 100)
            violations.push_back("cycle " + std::to_string(cycle) + ", adapter " + std::to_string(adapter) + ": " + text);
    }
};

}  // namespace verbena
