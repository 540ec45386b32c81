// Host memory behind an AXI4 port: settable latency and bandwidth, random back pressure, answers out of order between ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "capture.h"
#include "memory_map.h"
#include "random.h"
#include "report.h"
#include "signals.h"

namespace verbena {

struct MemorySettings {
    uint32_t read_latency = 128;   // cycles from the handshake of AR to the first beat of R
    uint32_t write_latency = 32;   // cycles from the handshake of the last W to B; only then is the write in memory
    uint32_t read_bandwidth = 16;  // beats in 16 cycles
    uint32_t write_bandwidth = 16;
    uint32_t outstanding = 64;     // bursts accepted and unanswered, of reads and of writes each
    double stall = 0;              // probability, each cycle, that a channel of the world's holds back
    bool shuffle = false;          // answer ids in random order, as AXI permits; within an id the order holds
    bool silent_reads = false;     // what is asked for now is not answered, before answer_silent(), nor what is behind it with its id
    bool silent_writes = false;
};

class AxiMemory {
public:
    AxiMemory(int adapter, int bytes, MemoryMap &map, Report &report, Capture &capture)
        : adapter_(adapter), bytes_(bytes), map_(map), report_(report), capture_(capture) {}

    MemorySettings settings;
    AxiInputs inputs;  // for the next cycle
    uint64_t read_beats = 0, write_beats = 0, read_bursts = 0, write_bursts = 0, decode_errors = 0;

    void reseed(uint64_t seed) { random_.reseed(seed, 0x100 + static_cast<uint64_t>(adapter_)); }
    void reset();
    void step(const Outputs &outputs);
    // Bursts that will never be answered do not count.
    bool idle() const { return silent(reads_) && silent(writes_) && beats_.empty(); }
    // Late answers: to all that were taken while the memory was silent.
    void answer_silent();

private:
    struct Burst {
        explicit Burst(const AxiAddress &asked, uint64_t now, uint64_t then = 0) : address(asked), start(now), due(then) {}

        AxiAddress address;
        uint64_t start;  // cycle of the address handshake
        uint64_t due;    // kNever: silent
        uint32_t done = 0;  // beats answered (read) or taken (write)
        bool complete = false;
        bool bad = false;
        std::vector<uint8_t> data;  // of a write
        std::vector<uint64_t> strobes;
    };

    static constexpr uint64_t kNever = ~uint64_t{0};

    static bool silent(const std::deque<Burst> &bursts) {
        return std::all_of(bursts.begin(), bursts.end(), [](const Burst &b) { return b.due == kNever; });
    }
    bool stalled() { return settings.stall > 0 && random_.chance(settings.stall); }
    void check_address(const char *channel, const AxiAddress &now, AxiAddress &held, bool ready);
    void accept_write_data(const Outputs &outputs);
    void commit(Burst &burst);
    void answer_reads(const Outputs &outputs);
    void answer_writes(const Outputs &outputs);
    void record(const Burst &burst, bool write);
    int pick(std::deque<Burst> &bursts, bool write);
    uint64_t beat_address(const AxiAddress &address, uint32_t index) const;

    const int adapter_;
    const int bytes_;
    MemoryMap &map_;
    Report &report_;
    Capture &capture_;
    Random random_;
    AxiAddress held_ar_, held_aw_;
    AxiWriteData held_w_;
    std::deque<Burst> reads_;
    std::deque<Burst> writes_;
    std::deque<AxiWriteData> beats_;  // of W, that came before their address
    int reading_ = -1;                // index in reads_ of the burst on R
    int answering_ = -1;              // index in writes_ of the burst on B
    uint32_t read_credit_ = 16;
    uint32_t write_credit_ = 16;
};

}  // namespace verbena
