// A small random generator whose sequence is the same on every machine (the standard library's distributions are not).
#pragma once

#include <cstdint>

namespace verbena {

class Random {
public:
    explicit Random(uint64_t seed = 0) { reseed(seed); }

    // Distinct streams come from one seed by mixing in `stream`.
    void reseed(uint64_t seed, uint64_t stream = 0) {
        state_ = seed * 0x9E3779B97F4A7C15u ^ (stream + 1) * 0xD1B54A32D192ED03u;
        next();
    }

    // SplitMix64 (Steele, Lea, Flood 2014).
    uint64_t next() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }

    // Uniform in 0 to bound - 1; the bias of the multiplication is below 2**-32.
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>(((next() >> 32) * bound) >> 32); }

    bool chance(double probability) {
        return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
    }

private:
    uint64_t state_ = 0;
};

}  // namespace verbena
