#include "capture.h"

#include <stdio_ext.h>

#include <cmath>
#include <cstring>

namespace verbena {

// draft-ietf-opsawg-pcapng: blocks, options and link types.
constexpr uint32_t kSectionHeader = 0x0A0D0D0A, kInterface = 1, kEnhancedPacket = 6;
constexpr uint16_t kLinkEthernet = 1, kLinkUser0 = 147;
constexpr uint16_t kOptionEnd = 0, kOptionComment = 1, kOptionName = 2, kOptionFlags = 2, kOptionResolution = 9;
constexpr uint32_t kInbound = 1, kOutbound = 2, kErrorCrc = 1u << 24;

namespace {

template <typename T>
void put(std::vector<uint8_t> &body, T value) {
    const size_t end = body.size();
    body.resize(end + sizeof value);
    std::memcpy(body.data() + end, &value, sizeof value);
}

void put_bytes(std::vector<uint8_t> &body, const void *data, size_t size) {
    const auto *bytes = static_cast<const uint8_t *>(data);
    body.insert(body.end(), bytes, bytes + size);
    body.resize((body.size() + 3) / 4 * 4);
}

void put_option(std::vector<uint8_t> &body, uint16_t code, const void *data, size_t size) {
    put(body, code);
    put(body, static_cast<uint16_t>(size));
    put_bytes(body, data, size);
}

}  // namespace

bool Capture::open(const std::string &path, double clock_hz, int adapters, bool bus, Frames frames) {
    close();
    file_ = std::fopen(path.c_str(), "wb");
    if (file_ == nullptr) return false;
    bus_ = bus;
    frames_ = frames;
    adapters_ = adapters;
    nanoseconds_ = 1e9 / clock_hz;
    std::vector<uint8_t> body;
    put<uint32_t>(body, 0x1A2B3C4D);
    put<uint16_t>(body, 1);
    put<uint16_t>(body, 0);
    put<int64_t>(body, -1);
    char clock[48];
    const int length = std::snprintf(clock, sizeof clock, "clock %.0f Hz", clock_hz);
    put_option(body, kOptionComment, clock, static_cast<size_t>(length));
    put_option(body, kOptionEnd, nullptr, 0);
    block(kSectionHeader, body);
    // Interfaces in a known order, used or not, so that filters can name them by number.
    for (int i = 0; i < adapters; i++) interface_of(kFrame, i);
    for (int i = 0; bus && i < adapters; i++) interface_of(kBus, i);
    return true;
}

void Capture::abandon() {
    if (file_ == nullptr) return;
    __fpurge(file_);
    std::fclose(file_);
    file_ = nullptr;
}

void Capture::close() {
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
    bus_ = false;
    interfaces_.clear();
}

void Capture::block(uint32_t type, const std::vector<uint8_t> &body) {
    const uint32_t length = static_cast<uint32_t>(body.size()) + 12;
    std::fwrite(&type, 4, 1, file_);
    std::fwrite(&length, 4, 1, file_);
    std::fwrite(body.data(), 1, body.size(), file_);
    std::fwrite(&length, 4, 1, file_);
}

uint32_t Capture::interface_of(Kind kind, int index) {
    const auto [place, fresh] = interfaces_.try_emplace({kind, index}, static_cast<uint32_t>(interfaces_.size()));
    if (!fresh) return place->second;
    const std::string name = kind == kBus          ? "bus" + std::to_string(index)
                             : index < adapters_ ? "adapter" + std::to_string(index)
                                                 : "tap" + std::to_string(index - adapters_);
    std::vector<uint8_t> body;
    put<uint16_t>(body, kind == kBus ? kLinkUser0 : kLinkEthernet);
    put<uint16_t>(body, 0);
    put<uint32_t>(body, 0);
    put_option(body, kOptionName, name.data(), name.size());
    const uint8_t nanoseconds = 9;
    put_option(body, kOptionResolution, &nanoseconds, 1);
    put_option(body, kOptionEnd, nullptr, 0);
    block(kInterface, body);
    return place->second;
}

void Capture::packet(uint32_t interface, uint64_t cycle, const std::vector<uint8_t> &data, uint32_t flags,
                     const std::string &comment) {
    const auto time = static_cast<uint64_t>(std::llround(static_cast<double>(cycle) * nanoseconds_));
    std::vector<uint8_t> body;
    put<uint32_t>(body, interface);
    put<uint32_t>(body, static_cast<uint32_t>(time >> 32));
    put<uint32_t>(body, static_cast<uint32_t>(time));
    put<uint32_t>(body, static_cast<uint32_t>(data.size()));
    put<uint32_t>(body, static_cast<uint32_t>(data.size()));
    put_bytes(body, data.data(), data.size());
    if (flags != 0) put_option(body, kOptionFlags, &flags, 4);
    if (!comment.empty()) put_option(body, kOptionComment, comment.data(), comment.size());
    put_option(body, kOptionEnd, nullptr, 0);
    block(kEnhancedPacket, body);
}

void Capture::frame(int port, bool inbound, uint64_t cycle, const std::vector<uint8_t> &data, bool error,
                    const std::string &comment) {
    if (!active()) return;
    const bool unsent = inbound && comment == "injected";
    if (!unsent && frames_ != Frames::kBoth && frames_ != (inbound ? Frames::kReceived : Frames::kSent)) return;
    packet(interface_of(kFrame, port), cycle, data, (inbound ? kInbound : kOutbound) | (error ? kErrorCrc : 0), comment);
}

void Capture::bus(int adapter, const Transaction &t) {
    if (!active() || !bus_) return;
    std::vector<uint8_t> data;
    put<uint8_t>(data, static_cast<uint8_t>((t.mmio ? 2 : 0) + (t.write ? 1 : 0)));
    put<uint8_t>(data, static_cast<uint8_t>(t.id));
    put<uint16_t>(data, static_cast<uint16_t>(t.response));
    put<uint32_t>(data, t.length);
    put<uint64_t>(data, t.address);
    put<uint64_t>(data, t.start);
    put<uint64_t>(data, t.cycle);
    data.insert(data.end(), t.data, t.data + t.length);
    static const char *const responses[] = {"OKAY", "EXOKAY", "SLVERR", "DECERR"};
    char text[160];
    std::snprintf(text, sizeof text, "%s %s 0x%llx, %u bytes, id %u, %s, %llu cycles", t.mmio ? "register" : "DMA",
                  t.write ? "write" : "read", static_cast<unsigned long long>(t.address), t.length, t.id,
                  responses[t.response & 3], static_cast<unsigned long long>(t.cycle - t.start));
    packet(interface_of(kBus, adapter), t.cycle, data, 0, text);
}

}  // namespace verbena
