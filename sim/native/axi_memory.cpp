#include "axi_memory.h"

#include <algorithm>
#include <cstring>

namespace verbena {

constexpr uint32_t kOkay = 0, kDecodeError = 3;

void AxiMemory::reset() {
    reads_.clear();
    writes_.clear();
    beats_.clear();
    held_ar_ = held_aw_ = AxiAddress{};
    held_w_ = AxiWriteData{};
    reading_ = answering_ = -1;
    inputs = AxiInputs{};
}

// AXI4 (IHI 0022) A3.2.1: once valid, an address stays until it is taken. A3.4.1: no burst crosses 4 KiB.
void AxiMemory::check_address(const char *channel, const AxiAddress &now, AxiAddress &held, bool ready) {
    const std::string name = channel;
    if (held.valid && !(now == held)) report_.violation(adapter_, name + " changed before it was taken");
    held = now;
    if (now.valid && ready) held.valid = false;
    if (!now.valid || !ready) return;
    const uint64_t beat = uint64_t{1} << now.size;
    if (now.burst != 1) report_.violation(adapter_, name + " asks for a burst that is not INCR");
    if (beat > static_cast<uint64_t>(bytes_)) report_.violation(adapter_, name + " is wider than the bus");
    const uint64_t end = (now.address & ~(beat - 1)) + (now.length + 1) * beat;
    if ((now.address ^ (end - 1)) / kPage != 0) report_.violation(adapter_, name + " crosses 4 KiB");
}

uint64_t AxiMemory::beat_address(const AxiAddress &address, uint32_t index) const {
    const uint64_t beat = uint64_t{1} << address.size;
    return index == 0 ? address.address : (address.address & ~(beat - 1)) + index * beat;
}

void AxiMemory::step(const Outputs &outputs) {
    if (outputs.reset) return reset();
    const uint64_t now = report_.cycle;

    check_address("AR", outputs.ar, held_ar_, inputs.arready);
    if (outputs.ar.valid && inputs.arready) {
        reads_.emplace_back(outputs.ar, now, settings.silent_reads ? kNever : now + settings.read_latency);
        read_bursts++;
    }
    check_address("AW", outputs.aw, held_aw_, inputs.awready);
    if (outputs.aw.valid && inputs.awready) {
        writes_.emplace_back(outputs.aw, now, settings.silent_writes ? kNever : 0);
        write_bursts++;
    }
    accept_write_data(outputs);
    answer_reads(outputs);
    answer_writes(outputs);

    inputs.arready = reads_.size() < settings.outstanding && !stalled();
    inputs.awready = writes_.size() < settings.outstanding && !stalled();
    write_credit_ = std::min(write_credit_ + settings.write_bandwidth, 16u + settings.write_bandwidth - 1);
    inputs.wready = write_credit_ >= 16 && beats_.size() < 512 && !stalled();
}

void AxiMemory::accept_write_data(const Outputs &outputs) {
    const AxiWriteData &w = outputs.w;
    if (held_w_.valid && (!w.valid || w.last != held_w_.last || w.strobe != held_w_.strobe ||
                          std::memcmp(w.data, held_w_.data, static_cast<size_t>(bytes_)) != 0))
        report_.violation(adapter_, "W changed before it was taken");
    held_w_.valid = w.valid && !inputs.wready;
    if (held_w_.valid) held_w_ = w;
    if (w.valid && inputs.wready) {
        write_credit_ -= 16;
        write_beats++;
        beats_.push_back(w);
    }
    // Addresses and data meet in order (A5.2.3: AXI4 has no write interleaving).
    auto open = std::find_if(writes_.begin(), writes_.end(), [](const Burst &b) { return !b.complete; });
    while (!beats_.empty() && open != writes_.end()) {
        const AxiWriteData beat = beats_.front();
        beats_.pop_front();
        open->data.insert(open->data.end(), beat.data, beat.data + bytes_);
        open->strobes.push_back(beat.strobe);
        const bool last = open->done++ == open->address.length;
        if (last != beat.last) report_.violation(adapter_, "WLAST does not stand at the end of its burst");
        if (last) {
            open->complete = true;
            if (open->due != kNever) open->due = report_.cycle + settings.write_latency;
            ++open;
        }
    }
}

void AxiMemory::answer_silent() {
    for (auto *bursts : {&reads_, &writes_})
        for (auto &burst : *bursts)
            if (burst.due == kNever) burst.due = report_.cycle;
}

// Which burst is answered next: the first, or, when shuffled, any that is due and the first of its id.
int AxiMemory::pick(std::deque<Burst> &bursts, bool write) {
    const uint64_t next = report_.cycle + 1;
    const auto ready = [&](const Burst &b) { return b.due <= next && (!write || b.complete); };
    uint32_t found = 0;
    int chosen = -1;
    std::vector<uint32_t> seen;
    for (size_t i = 0; i < bursts.size(); i++) {
        const uint32_t id = bursts[i].address.id;
        if (std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
        seen.push_back(id);
        if (bursts[i].due == kNever) continue;
        if (!settings.shuffle) return ready(bursts[i]) ? static_cast<int>(i) : -1;
        if (ready(bursts[i]) && random_.below(++found) == 0) chosen = static_cast<int>(i);
    }
    return chosen;
}

void AxiMemory::answer_reads(const Outputs &outputs) {
    read_credit_ = std::min(read_credit_ + settings.read_bandwidth, 16u + settings.read_bandwidth - 1);
    if (inputs.rvalid && outputs.rready) {
        Burst &burst = reads_[static_cast<size_t>(reading_)];
        inputs.rvalid = false;
        read_beats++;
        if (burst.done > burst.address.length) {
            record(burst, false);
            reads_.erase(reads_.begin() + reading_);
            reading_ = -1;
        }
    }
    if (inputs.rvalid || read_credit_ < 16 || stalled()) return;
    if (reading_ < 0) reading_ = pick(reads_, false);
    if (reading_ < 0) return;
    Burst &burst = reads_[static_cast<size_t>(reading_)];
    const uint64_t address = beat_address(burst.address, burst.done) & ~static_cast<uint64_t>(bytes_ - 1);
    const uint8_t *host = map_.find(address);
    if (host == nullptr) {
        // Not zeroes: who uses the data of a failed read shall notice.
        std::memset(inputs.rdata, 0xEE, static_cast<size_t>(bytes_));
        if (!burst.bad) decode_errors++;
        burst.bad = true;
    } else {
        std::memcpy(inputs.rdata, host, static_cast<size_t>(bytes_));
    }
    if (capture_.wants_bus()) burst.data.insert(burst.data.end(), inputs.rdata, inputs.rdata + bytes_);
    read_credit_ -= 16;
    inputs.rvalid = true;
    inputs.rid = burst.address.id;
    inputs.rresp = host == nullptr ? kDecodeError : kOkay;
    inputs.rlast = burst.done++ == burst.address.length;
}

void AxiMemory::commit(Burst &burst) {
    const uint64_t beat = uint64_t{1} << burst.address.size;
    const size_t width = static_cast<size_t>(bytes_);
    for (uint32_t i = 0; i <= burst.address.length; i++) {
        const uint64_t address = beat_address(burst.address, i);
        const uint64_t base = address & ~static_cast<uint64_t>(bytes_ - 1);
        // A3.4.4: only the lanes of the transfer may be strobed.
        const uint64_t low = address - base, high = (address & ~(beat - 1)) + beat - base;
        const uint64_t strobe = burst.strobes[i];
        const uint64_t lanes = (high == 64 ? ~uint64_t{0} : (uint64_t{1} << high) - 1) & ~((uint64_t{1} << low) - 1);
        if ((strobe & ~lanes) != 0) report_.violation(adapter_, "WSTRB outside of the lanes of its transfer");
        uint8_t *host = map_.find(base);
        if (host == nullptr) {
            burst.bad = true;
            continue;
        }
        const uint8_t *data = burst.data.data() + i * width;
        if (strobe == ~uint64_t{0} >> (64 - width)) {
            std::memcpy(host, data, width);
            map_.written(host, width);
            continue;
        }
        for (size_t lane = 0; lane < width; lane++)
            if (strobe >> lane & 1) {
                host[lane] = data[lane];
                map_.written(host + lane, 1);
            }
    }
    if (burst.bad) decode_errors++;
}

void AxiMemory::answer_writes(const Outputs &outputs) {
    if (inputs.bvalid && outputs.bready) {
        record(writes_[static_cast<size_t>(answering_)], true);
        writes_.erase(writes_.begin() + answering_);
        answering_ = -1;
        inputs.bvalid = false;
    }
    if (inputs.bvalid || stalled()) return;
    if (answering_ < 0) answering_ = pick(writes_, true);
    if (answering_ < 0) return;
    Burst &burst = writes_[static_cast<size_t>(answering_)];
    // As late as the answer: an engine that does not wait for it is found out.
    commit(burst);
    inputs.bvalid = true;
    inputs.bid = burst.address.id;
    inputs.bresp = burst.bad ? kDecodeError : kOkay;
}

void AxiMemory::record(const Burst &burst, bool write) {
    if (!capture_.wants_bus()) return;
    capture_.bus(adapter_, {.write = write,
                            .id = burst.address.id,
                            .response = burst.bad ? kDecodeError : kOkay,
                            .address = burst.address.address,
                            .start = burst.start,
                            .cycle = report_.cycle,
                            .data = burst.data.data(),
                            .length = static_cast<uint32_t>(burst.data.size())});
}

}  // namespace verbena
