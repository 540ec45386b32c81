// Everything that passes the wire and the host buses, as pcapng.
//
// One Ethernet interface ("adapter0", "tap0") a port of the switch; frames carry their direction (epb_flags) and, as a packet comment, what the
// wire did to them. A frame stands at its sender, at its receivers, or at all of them, as the caller wants; one that was injected has no sender.
// Its time is that of its last beat. The section header's comment, "clock 156250000 Hz", tells what a cycle is.
// One interface of link type USER0 ("bus0") an adapter, for host-bus transactions: a header of 32 bytes, little-endian, and the data:
//
//   offset 0: kind (0 DMA read, 1 DMA write, 2 register read, 3 register write), 1: AXI id, 2: response (0 OKAY, 2 SLVERR, 3 DECERR), 3: zero
//   offset 4: bytes of data (whole beats), 8: bus address, 16: first cycle, 24: last cycle
//
// and the same as a packet comment, which Wireshark shows without a dissector.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace verbena {

struct Transaction {
    bool mmio = false;
    bool write = false;
    uint32_t id = 0;
    uint32_t response = 0;
    uint64_t address = 0;
    uint64_t start = 0;
    uint64_t cycle = 0;
    const uint8_t *data = nullptr;
    uint32_t length = 0;
};

enum class Frames { kSent = 1, kReceived = 2, kBoth = 3 };

class Capture {
public:
    ~Capture() { close(); }

    bool open(const std::string &path, double clock_hz, int adapters, bool bus, Frames frames = Frames::kBoth);
    void close();
    // In a child process: what is not yet written, its parent writes.
    void abandon();
    void flush() {
        if (file_ != nullptr) std::fflush(file_);
    }

    bool active() const { return file_ != nullptr; }
    bool wants_bus() const { return bus_; }

    // Inbound is towards the port's owner.
    void frame(int port, bool inbound, uint64_t cycle, const std::vector<uint8_t> &data, bool error,
               const std::string &comment);
    void bus(int adapter, const Transaction &transaction);

private:
    enum Kind { kFrame, kBus };

    void block(uint32_t type, const std::vector<uint8_t> &body);
    uint32_t interface_of(Kind kind, int index);
    void packet(uint32_t interface, uint64_t cycle, const std::vector<uint8_t> &data, uint32_t flags,
                const std::string &comment);

    std::FILE *file_ = nullptr;
    bool bus_ = false;
    Frames frames_ = Frames::kBoth;
    double nanoseconds_ = 6.4;  // of a cycle
    int adapters_ = 0;
    std::map<std::pair<Kind, int>, uint32_t> interfaces_;
};

}  // namespace verbena
