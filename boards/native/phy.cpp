// A node at its RGMII pins, with the PHY and the cable on their other side at 1 Gb/s. The C interface is what Python
// reaches by ctypes (boards/sim.py declares the same). Frames have no preamble and no FCS here; both are made and
// checked on the line.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "Vengine.h"
#include "verilated.h"

// Verilator writes the second underscore of `pins__tx_data` as its code.
#define PIN(name) pins___05F##name

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kLeast = 60, kGap = 12;
constexpr uint8_t kPreamble = 0x55, kDelimiter = 0xD5;
constexpr size_t kPreambleBytes = 7;

// CRC-32 of IEEE 802.3, a bit at a time from a table of bytes.
uint32_t fcs(const uint8_t *data, size_t size) {
    static const auto table = [] {
        std::array<uint32_t, 256> rows{};
        for (uint32_t n = 0; n < rows.size(); n++) {
            uint32_t row = n;
            for (int bit = 0; bit < 8; bit++) row = row >> 1 ^ (row & 1 ? 0xEDB88320u : 0);
            rows[n] = row;
        }
        return rows;
    }();
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xFF];
    return ~crc;
}

struct Clock {
    int64_t period, next;
    bool level = false;
};

class Phy {
public:
    Phy(int64_t core, int64_t transmit, int64_t receive, int seed)
        : clocks_{Clock{core, core}, Clock{transmit, transmit / 3}, Clock{receive, receive / 5}} {
        context_->threads(1);  // as of sim/native/engine_verilated.cpp
        context_->randReset(2);
        context_->randSeed(seed);
        model_ = std::make_unique<Vengine>(context_.get(), "node");
        model_->rst = model_->ethernet_tx_rst = model_->ethernet_rx_rst = 1;
        model_->uart_rx = model_->mdio_i = 1;
        advance(20 * core, false);
        model_->rst = model_->ethernet_tx_rst = model_->ethernet_rx_rst = 0;
        // Until then the pins may have done anything.
        heard_.clear();
        received.clear();
        std::fill(std::begin(counters), std::end(counters), 0);
    }
    ~Phy() {
        model_->final();
        // A model takes leave of the context that its thread used last, which may be gone.
        Verilated::threadContextp(context_.get());
    }

    // At most to `time`; to the first whole frame, if `stop`.
    void advance(int64_t time, bool stop) {
        while (!(stop && !received.empty())) {
            int64_t next = clocks_[0].next;
            for (const Clock &clock : clocks_) next = std::min(next, clock.next);
            if (next > time) {
                now = std::max(now, time);
                return;
            }
            now = next;
            step();
        }
    }

    int64_t now = 0;
    std::deque<Bytes> waiting, received;
    // Frames and their bytes on the line, to the node and from it; frames from it with a wrong preamble or FCS, too short
    // a gap before them, or too few bytes.
    uint64_t counters[7] = {};

private:
    enum { kCore, kTransmit, kReceive };

    bool toggle(int number) {
        Clock &clock = clocks_[static_cast<size_t>(number)];
        if (clock.next > now) return false;
        clock.level = !clock.level;
        clock.next += clock.period / 2;
        return true;
    }

    void step() {
        if (toggle(kCore)) model_->clk = clocks_[kCore].level;
        if (toggle(kTransmit)) model_->ethernet_tx_clk = clocks_[kTransmit].level;
        if (toggle(kReceive)) {
            const bool level = clocks_[kReceive].level;
            model_->ethernet_rx_clk = level;
            if (level) next_byte();
            model_->PIN(rx_control) = valid_;
            model_->PIN(rx_data) = level ? byte_ & 15 : byte_ >> 4;
        }
        model_->eval();
        if (const bool clock = model_->PIN(tx_clock); clock != tx_clock_) {
            tx_clock_ = clock;
            sample(clock);
        }
    }

    // Towards the node.
    void next_byte() {
        if (at_ == line_.size() + kGap || line_.empty()) {
            line_.clear();
            at_ = 0;
            if (!waiting.empty()) {
                Bytes frame = std::move(waiting.front());
                waiting.pop_front();
                frame.resize(std::max(frame.size(), kLeast));
                line_.assign(kPreambleBytes, kPreamble);
                line_.push_back(kDelimiter);
                line_.insert(line_.end(), frame.begin(), frame.end());
                const uint32_t check = fcs(frame.data(), frame.size());
                for (int shift = 0; shift < 32; shift += 8) line_.push_back(static_cast<uint8_t>(check >> shift));
                counters[0]++;
                counters[1] += line_.size() + kGap;
            }
        }
        valid_ = at_ < line_.size();
        byte_ = valid_ ? line_[at_] : 0;
        if (!line_.empty()) at_++;
    }

    // From the node, at an edge of its clock.
    void sample(bool rising) {
        const uint8_t nibble = model_->PIN(tx_data) & 15;
        if (rising) {
            low_ = nibble;
            enable_ = model_->PIN(tx_control);
            return;
        }
        if (enable_) {
            if (heard_.empty()) counters[5] += quiet_ < kGap;
            quiet_ = 0;
            heard_.push_back(static_cast<uint8_t>(nibble << 4 | low_));
            return;
        }
        if (!heard_.empty()) end_of_frame();
        quiet_ += quiet_ < kGap;
    }

    void end_of_frame() {
        counters[2]++;
        counters[3] += heard_.size() + kGap;
        constexpr size_t head = kPreambleBytes + 1;
        const size_t size = heard_.size() < head + 4 ? 0 : heard_.size() - head - 4;
        bool good = size != 0 && heard_[kPreambleBytes] == kDelimiter;
        for (size_t i = 0; i < kPreambleBytes && good; i++) good = heard_[i] == kPreamble;
        if (good) {
            uint32_t check;
            std::memcpy(&check, &heard_[head + size], sizeof check);
            good = check == fcs(&heard_[head], size);
        }
        counters[4] += !good;
        counters[6] += size < kLeast;
        if (good) received.emplace_back(heard_.begin() + head, heard_.end() - 4);
        heard_.clear();
    }

    std::unique_ptr<VerilatedContext> context_ = std::make_unique<VerilatedContext>();
    std::unique_ptr<Vengine> model_;
    std::array<Clock, 3> clocks_;
    Bytes line_, heard_;
    size_t at_ = 0, quiet_ = kGap;
    bool valid_ = false, enable_ = false, tx_clock_ = false;
    uint8_t byte_ = 0, low_ = 0;
};

}  // namespace

extern "C" {

// Periods and times are in femtoseconds.
Phy *phy_create(int64_t core, int64_t transmit, int64_t receive, int seed) { return new Phy(core, transmit, receive, seed); }
void phy_destroy(Phy *phy) { delete phy; }
int64_t phy_now(Phy *phy) { return phy->now; }
void phy_advance(Phy *phy, int64_t time, int stop) { phy->advance(time, stop != 0); }
void phy_send(Phy *phy, const uint8_t *data, uint32_t size) { phy->waiting.emplace_back(data, data + size); }
uint32_t phy_waiting(Phy *phy) { return static_cast<uint32_t>(phy->waiting.size()); }
void phy_counters(Phy *phy, uint64_t *counters) { std::memcpy(counters, phy->counters, sizeof phy->counters); }

// The size of the oldest frame, which goes if it fits; -1 without one.
int64_t phy_receive(Phy *phy, uint8_t *data, uint32_t size) {
    if (phy->received.empty()) return -1;
    const Bytes frame = phy->received.front();
    if (frame.size() <= size) {
        std::memcpy(data, frame.data(), frame.size());
        phy->received.pop_front();
    }
    return static_cast<int64_t>(frame.size());
}
}
