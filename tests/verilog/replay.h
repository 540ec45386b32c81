// Replays a trace on a block that Verilator has compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "verilated.h"
#include "verilated_funcs.h"

// Verilator makes X random whatever the context says; here the context decides, as it does for what has no initial value.
#define VL_SCOPED_RAND_RESET_ASSIGN_I VL_SCOPED_RAND_RESET_I
#define VL_SCOPED_RAND_RESET_ASSIGN_Q VL_SCOPED_RAND_RESET_Q
#define VL_SCOPED_RAND_RESET_ASSIGN_W VL_SCOPED_RAND_RESET_W

enum class Kind { input, output, handshake, clock };

// A port's place in the model and in a row. An output counts only while its gate, the port of that index, is not 0.
struct Port {
    uint8_t* place;
    size_t offset;
    size_t size;
    Kind kind;
    int gate;
};

// The first row in which an output differs from the trace, or -1; then `port` is its index, and `values` is what the first
// two copies have.
//
// `copies` of the block run side by side. What is undefined is 0 in the first, 1 in the second, and random in the others.
// So bits that differ are undefined: an error in `valid` and `ready`; else they do not count, and `undefined` is the
// number of rows with any.
template <typename Model, typename Ports>
int64_t replay(Ports ports_of, const uint8_t* row, int64_t count, int32_t copies, int64_t* undefined, int32_t* port,
               uint8_t* values) {
    std::vector<std::unique_ptr<VerilatedContext>> contexts;
    std::vector<std::unique_ptr<Model>> models;
    std::vector<std::vector<Port>> ports;
    for (int copy = 0; copy < copies; ++copy) {
        contexts.push_back(std::make_unique<VerilatedContext>());
        contexts.back()->randReset(copy < 2 ? copy : 2);
        contexts.back()->randSeed(copy + 1);
        Verilated::threadContextp(contexts.back().get());
        models.push_back(std::make_unique<Model>(contexts.back().get(), "block"));
        ports.push_back(ports_of(*models.back()));
    }
    const std::vector<Port>& first = ports[0];
    *undefined = 0;
    size_t row_size = 0;
    for (const Port& each : first) row_size += each.size;
    for (int64_t number = 0; number < count; ++number, row += row_size) {
        bool rises = false;
        for (size_t index = 0; index < first.size(); ++index) {
            const Port& each = first[index];
            for (const auto& copy : ports) {
                if (each.kind == Kind::input) std::memcpy(copy[index].place, row + each.offset, each.size);
                if (each.kind == Kind::clock) *copy[index].place = 0;
            }
            rises |= each.kind == Kind::clock && row[each.offset] != 0;
        }
        for (auto& model : models) model->eval();
        bool some_undefined = false;
        for (size_t index = 0; index < first.size(); ++index) {
            const Port& each = first[index];
            if (each.kind != Kind::output && each.kind != Kind::handshake) continue;
            if (each.gate >= 0 && !row[first[each.gate].offset]) continue;
            for (size_t byte = 0; byte < each.size; ++byte) {
                const uint8_t wanted = row[each.offset + byte];
                uint8_t always = 0xFF, ever = 0;  // bits that differ from the trace in all copies, in any copy
                for (const auto& copy : ports) {
                    const uint8_t wrong = copy[index].place[byte] ^ wanted;
                    always &= wrong;
                    ever |= wrong;
                }
                some_undefined |= always != ever;
                if (each.kind == Kind::handshake ? ever == 0 : always == 0) continue;
                *port = static_cast<int32_t>(index);
                std::memcpy(values, each.place, each.size);
                std::memcpy(values + each.size, ports[1][index].place, each.size);
                return number;
            }
        }
        *undefined += some_undefined;
        if (!rises) continue;
        for (size_t index = 0; index < first.size(); ++index) {
            for (const auto& copy : ports) {
                if (first[index].kind == Kind::clock) *copy[index].place = row[first[index].offset];
            }
        }
        for (auto& model : models) model->eval();
    }
    return -1;
}
