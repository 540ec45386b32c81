#include "memory_map.h"

#include <algorithm>

namespace verbena {

bool MemoryMap::add(const Window &window) {
    const uint64_t pages = window.size / kPage;
    const uint64_t host = reinterpret_cast<uint64_t>(window.host);
    if (pages == 0 || (window.size | window.bus | host) % kPage != 0) return false;
    if (window.mask != 0 && ((pages & (pages - 1)) != 0 || window.mask >= pages)) return false;
    auto place = std::lower_bound(windows_.begin(), windows_.end(), window.bus,
                                  [](const Window &w, uint64_t bus) { return w.bus < bus; });
    if (place != windows_.end() && window.bus + window.size > place->bus) return false;
    if (place != windows_.begin() && std::prev(place)->bus + std::prev(place)->size > window.bus) return false;
    windows_.insert(place, window);
    last_ = nullptr;
    return true;
}

bool MemoryMap::remove(uint64_t bus) {
    auto place = std::find_if(windows_.begin(), windows_.end(), [bus](const Window &w) { return w.bus == bus; });
    if (place == windows_.end()) return false;
    windows_.erase(place);
    last_ = nullptr;
    return true;
}

uint8_t *MemoryMap::find(uint64_t address) const {
    const Window *window = last_;
    if (window == nullptr || address - window->bus >= window->size) {
        auto place = std::upper_bound(windows_.begin(), windows_.end(), address,
                                      [](uint64_t a, const Window &w) { return a < w.bus; });
        if (place == windows_.begin()) return nullptr;
        window = &*std::prev(place);
        if (address - window->bus >= window->size) return nullptr;
        last_ = window;
    }
    const uint64_t offset = address - window->bus;
    return window->host + (((offset / kPage) ^ window->mask) * kPage + offset % kPage);
}

int MemoryMap::watch(const uint8_t *host, uint64_t size) {
    watches_.push_back({host, host + size, next_watch_});
    bound_watches();
    return next_watch_++;
}

bool MemoryMap::unwatch(int id) {
    const bool found = std::erase_if(watches_, [id](const Watch &w) { return w.id == id; }) != 0;
    bound_watches();
    return found;
}

void MemoryMap::check_watches(const uint8_t *host, uint64_t size) {
    for (const Watch &watch : watches_)
        if (host < watch.high && host + size > watch.low) report_.events |= kWatch;
}

void MemoryMap::bound_watches() {
    watch_low_ = watch_high_ = nullptr;
    for (const Watch &watch : watches_) {
        if (watch_low_ == nullptr || watch.low < watch_low_) watch_low_ = watch.low;
        watch_high_ = std::max(watch_high_, watch.high);
    }
}

}  // namespace verbena
