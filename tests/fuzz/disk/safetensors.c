/* safetensors.c - the reader of safetensors files, fuzzed: see fuzz.h. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_file("safetensors", data, size);
}
