#include "wire.h"

#include <algorithm>
#include <cstring>

namespace verbena {

namespace {

Mac destination(const Frame &frame) {
    Mac mac{};
    std::copy_n(frame.data.begin(), std::min<size_t>(6, frame.data.size()), mac.begin());
    return mac;
}

}  // namespace

Port &Wire::add(int bytes, Link *link) {
    ports_.push_back(std::make_unique<Port>(ports(), bytes, link));
    return *ports_.back();
}

void Wire::reseed(uint64_t seed) {
    random_.reseed(seed, 0x300);
    for (auto &port : ports_) port->faults.reseed(seed, static_cast<uint64_t>(port->index));
}

bool Wire::idle() const {
    return std::all_of(ports_.begin(), ports_.end(), [](const auto &p) { return p->queue.empty() && !p->sending; });
}

void Wire::step(int adapter, const Outputs &outputs) {
    Port &port = this->port(adapter);
    if (outputs.reset) {
        // A frame that reset cuts off never comes to its end: those who wait for it get it damaged.
        if (port.sending && port.routed) port.sending->complete = port.sending->error = true;
        port.sending = nullptr;
        port.held.valid = false;
        const bool link = port.inputs.link;
        port.inputs = WireInputs{};
        port.inputs.link = link;
        port.queue.clear();
        port.delivering = false;
        return;
    }
    transmit(port, outputs);
}

void Wire::transmit(Port &port, const Outputs &outputs) {
    const Beat &beat = outputs.tx;
    const auto width = static_cast<uint64_t>(port.bytes);
    if (port.held.valid &&
        (!beat.valid || beat.count != port.held.count || beat.first != port.held.first || beat.last != port.held.last ||
         std::memcmp(beat.data, port.held.data, beat.count) != 0))
        report_.violation(port.index, "tx changed before it was taken");
    port.held.valid = beat.valid && !port.inputs.tx_ready;
    if (port.held.valid) port.held = beat;

    if (beat.valid && port.inputs.tx_ready) {
        if (beat.first != (port.sending == nullptr)) report_.violation(port.index, "tx: `first` does not stand at the start of a frame");
        if (!beat.last && beat.count != width) report_.violation(port.index, "tx: a beat inside of a frame is not full");
        if (!port.sending) {
            port.sending = std::make_shared<Frame>();
            port.routed = false;
            port.tx_start = std::max(report_.cycle * width, port.tx_free);
        }
        const FramePointer frame = port.sending;
        frame->data.insert(frame->data.end(), beat.data, beat.data + beat.count);
        if (!port.routed && port.inputs.link && !settings.store && !port.faults.armed() && frame->data.size() >= 6) {
            port.routed = true;
            route(port, destination(*frame), frame, report_.cycle, false);
        }
        if (beat.last) {
            frame->complete = true;
            frame->error = beat.error;
            port.tx_free = std::max(port.tx_start + occupied(*frame), report_.cycle * width);
            port.sending = nullptr;
            finish(port, frame);
        }
    }
    // Ready in the next cycle, if the line is free before its end: fractions of a beat are carried over, so the rate is exact.
    const bool free = !settings.paced || port.sending || port.tx_free < (report_.cycle + 2) * width;
    port.inputs.tx_ready = free && !(settings.stall > 0 && random_.chance(settings.stall));
}

// The source has sent all of a frame.
void Wire::finish(Port &source, const FramePointer &frame) {
    const uint64_t number = source.sent_frames++;
    source.sent_bytes += frame->data.size();
    if (source.routed) {
        capture_.frame(source.index, false, report_.cycle, frame->data, frame->error, "");
        return;
    }
    const Decision decision = source.faults.decide(number);
    capture_.frame(source.index, false, report_.cycle, frame->data, frame->error, decision.text());
    if (decision.is[kLose] || !source.inputs.link) return;
    FramePointer first = frame;
    if (decision.is[kCorrupt] || decision.is[kDamage]) {
        first = std::make_shared<Frame>(*frame);
        if (decision.is[kCorrupt]) FaultInjector::corrupt(first->data, decision.flips);
        first->error = first->error || decision.is[kDamage];
    }
    if (first != frame || decision.is[kReorder] || decision.is[kDelay]) {
        if (first == frame) first = std::make_shared<Frame>(*frame);
        first->comment = decision.text();
    }
    const uint64_t at = report_.cycle + (decision.is[kReorder] ? decision.reorder_by : 0) + (decision.is[kDelay] ? decision.delay_by : 0);
    // By the address that was sent: the switch had read it before the fault.
    const Mac mac = destination(*frame);
    route(source, mac, first, at, decision.is[kReorder]);
    if (decision.is[kDuplicate]) {
        auto copy = std::make_shared<Frame>(*frame);
        copy->comment = "duplicate";
        route(source, mac, copy, report_.cycle, decision.is[kReorder]);
    }
}

// The switch has the frame, or as much of it as it waits for, in cycle `at`.
void Wire::route(Port &source, const Mac &mac, const FramePointer &frame, uint64_t at, bool overtaken) {
    // The link adds its own delay, and the time that it brings includes it.
    const uint64_t due = source.link != nullptr ? at : at + 1 + settings.delay;
    const bool group = (mac[0] & 1) != 0;
    bool known = false;
    for (auto &port : ports_)
        if (!group && port->mac == mac) {
            deliver(*port, frame, port->link != nullptr ? at : due, overtaken);
            known = true;
        }
    if (known) return;
    for (auto &port : ports_)
        if (port.get() != &source) deliver(*port, frame, port->link != nullptr ? at : due, overtaken);
}

void Wire::deliver(Port &destination, const FramePointer &frame, uint64_t due, bool overtaken) {
    if (!destination.inputs.link) return;
    if (!overtaken) destination.last_due = due = std::max(due, destination.last_due);
    auto &queue = destination.queue;
    auto place = std::upper_bound(queue.begin() + (destination.delivering ? 1 : 0), queue.end(), due,
                                  [](uint64_t d, const Port::Delivery &other) { return d < other.due; });
    queue.insert(place, {frame, due});
}

void Wire::send(int tap, std::vector<uint8_t> data, bool error) {
    Port &source = port(tap);
    auto frame = std::make_shared<Frame>();
    frame->data = std::move(data);
    frame->complete = true;
    frame->error = error;
    source.routed = !source.faults.armed();
    if (source.routed) route(source, destination(*frame), frame, report_.cycle, false);
    finish(source, frame);
}

void Wire::inject(int adapter, std::vector<uint8_t> data, bool error) {
    auto frame = std::make_shared<Frame>();
    frame->data = std::move(data);
    frame->complete = true;
    frame->error = error;
    frame->comment = "injected";
    deliver(port(adapter), frame, report_.cycle + 1, true);
}

void Wire::arrive(int port, std::vector<uint8_t> data, uint64_t cycle) {
    auto frame = std::make_shared<Frame>();
    frame->data = std::move(data);
    frame->complete = true;
    this->port(port).sent_frames++;
    this->port(port).sent_bytes += frame->data.size();
    route(this->port(port), destination(*frame), frame, cycle, false);
}

void Wire::step_link(int index, uint64_t now) {
    Port &port = this->port(index);
    while (!port.queue.empty() && port.queue.front().due <= report_.cycle && port.queue.front().frame->complete) {
        const FramePointer frame = port.queue.front().frame;
        port.queue.pop_front();
        // The other simulator's network knows no wrong FCS: who checks it drops the frame here.
        if (frame->error) continue;
        port.received_frames++;
        port.received_bytes += frame->data.size();
        if (!port.link->send(now, frame->data.data(), frame->data.size()))
            report_.violation(port.index, "a frame of " + std::to_string(frame->data.size()) + " bytes does not fit the link, whose slots hold " +
                                              std::to_string(port.link->longest()));
    }
}

void Wire::receive(Port &port, const Outputs &outputs) {
    WireInputs &inputs = port.inputs;
    const auto width = static_cast<uint64_t>(port.bytes);
    if (inputs.rx.valid && outputs.rx_ready) {
        inputs.rx.valid = false;
        if (inputs.rx.last) {
            const FramePointer frame = port.queue.front().frame;
            port.queue.pop_front();
            port.delivering = false;
            port.received_frames++;
            port.received_bytes += frame->data.size();
            port.rx_free = std::max(port.rx_start + occupied(*frame), report_.cycle * width);
            capture_.frame(port.index, true, report_.cycle, frame->data, frame->error, frame->comment);
        }
    }
    if (inputs.rx.valid || port.queue.empty()) return;
    Port::Delivery &head = port.queue.front();
    const uint64_t next = report_.cycle + 1;
    if (!port.delivering) {
        if (head.due > next || (settings.paced && port.rx_free >= (next + 1) * width)) return;
        port.rx_start = std::max(next * width, port.rx_free);
        port.delivering = true;
    }
    const Frame &frame = *head.frame;
    const size_t left = frame.data.size() - head.offset;
    // A frame that still grows goes on in full beats.
    if (!frame.complete && left < width) return;
    const size_t count = std::min<size_t>(left, width);
    const bool last = frame.complete && count == left;
    inputs.rx.valid = true;
    inputs.rx.first = head.offset == 0;
    inputs.rx.last = last;
    inputs.rx.error = last && frame.error;
    inputs.rx.count = static_cast<uint32_t>(count);
    std::memset(inputs.rx.data, 0, width);
    std::memcpy(inputs.rx.data, frame.data.data() + head.offset, count);
    head.offset += count;
}

void Wire::step_taps() {
    for (auto &port : ports_) {
        if (port->bytes != 0 || port->link != nullptr) continue;
        while (!port->queue.empty() && port->queue.front().due <= report_.cycle && port->queue.front().frame->complete) {
            const FramePointer frame = port->queue.front().frame;
            port->queue.pop_front();
            port->received_frames++;
            port->received_bytes += frame->data.size();
            capture_.frame(port->index, true, report_.cycle, frame->data, frame->error, frame->comment);
            port->received.push_back(frame);
            report_.events |= kTap;
        }
    }
}

}  // namespace verbena
