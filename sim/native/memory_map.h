// Where bus addresses lead: windows onto the memory of this process.
#pragma once

#include <cstdint>
#include <vector>

#include "report.h"

namespace verbena {

constexpr uint64_t kPage = 4096;

// Bus page `base + (page ^ mask)` is page `page` of the window: as long as the mask is below its number of pages (a power of two), this is a permutation,
// and neighbours in the process are not neighbours on the bus.
struct Window {
    uint64_t bus = 0;
    uint64_t size = 0;
    uint64_t mask = 0;
    uint8_t *host = nullptr;
};

class MemoryMap {
public:
    explicit MemoryMap(Report &report) : report_(report) {}

    // False if it overlaps another window or is not made of whole pages.
    bool add(const Window &window);
    bool remove(uint64_t bus);

    // The byte at a bus address; the pointer is good up to the end of the 4 KiB page. Null outside of every window.
    uint8_t *find(uint64_t address) const;

    // Raise an event when an engine writes to [host, host + size).
    int watch(const uint8_t *host, uint64_t size);
    bool unwatch(int id);

    // To be called for every write of an engine.
    void written(const uint8_t *host, uint64_t size) {
        if (host < watch_high_ && host + size > watch_low_) check_watches(host, size);
    }

private:
    struct Watch {
        const uint8_t *low;
        const uint8_t *high;
        int id;
    };

    void check_watches(const uint8_t *host, uint64_t size);
    void bound_watches();

    Report &report_;
    std::vector<Window> windows_;  // sorted by bus address
    mutable const Window *last_ = nullptr;
    std::vector<Watch> watches_;
    const uint8_t *watch_low_ = nullptr;
    const uint8_t *watch_high_ = nullptr;
    int next_watch_ = 1;
};

}  // namespace verbena
