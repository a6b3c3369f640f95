/* main.c - feeds a fuzz entry with what it makes of a corpus, by a seed, where libFuzzer is not
 * there:
 *
 *   fuzz_disk_NAME [--seed=S] [--count=N | --seconds=T] FILE...
 *
 * The same seed makes the same inputs. One that ends the program is left in fuzz.crash. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16, FILES = 512, CHANGES = 6 };
typedef struct Sample {
    uint8_t *bytes;
    size_t n;
} Sample;

static Sample samples[FILES];
static int nsample;
static uint8_t input[MOST];
static size_t input_size;
static uint64_t state;

/* splitmix64 */
static uint64_t drawn(uint64_t below) {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static void note_crash(int number) {
    FILE *f = fopen("fuzz.crash", "wb");
    if (f) {
        fwrite(input, 1, input_size, f);
        fclose(f);
        fprintf(stderr, "the input is in fuzz.crash\n");
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void add_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || nsample == FILES) {
        fprintf(stderr, "%s: it cannot be read, or is one too many\n", path);
        exit(2);
    }
    Sample *s = &samples[nsample++];
    s->bytes = malloc(MOST);
    s->n = s->bytes ? fread(s->bytes, 1, MOST, f) : 0;
    fclose(f);
}

/* Writes a number that readers may trip over at a place, in 1 to 8 bytes. */
static void put_number(size_t at) {
    static const uint64_t numbers[] = {
        0,          1,          2,          7,          8,
        31,         32,         127,        128,        255,
        256,        65535,      65536,      1u << 20,   100000000,
        1u << 31,   UINT32_MAX, 1ull << 32, 1ull << 53, (1ull << 53) + 1,
        1ull << 56, 1ull << 60, 1ull << 63, UINT64_MAX, INT64_MAX};
    uint64_t x = numbers[drawn(sizeof numbers / sizeof *numbers)];
    size_t n = (size_t)1 << drawn(4);
    if (drawn(2)) x = input_size - (x & 15);
    for (size_t i = 0; i < n && at + i < input_size; i++) input[at + i] = (uint8_t)(x >> 8 * i);
}

/* A decimal number in a text becomes another. */
static void change_digits(size_t at) {
    static const char *const texts[] = {"0",
                                        "-1",
                                        "1.0",
                                        "1e3",
                                        "9007199254740993",
                                        "72057594037927937",
                                        "99999999999999999999",
                                        "4294967296",
                                        "true",
                                        "null",
                                        "[]"};
    while (at < input_size && (input[at] < '0' || input[at] > '9')) at++;
    size_t end = at;
    while (end < input_size && input[end] >= '0' && input[end] <= '9') end++;
    const char *text = texts[drawn(sizeof texts / sizeof *texts)];
    size_t n = strlen(text);
    if (at == end || input_size - (end - at) + n > MOST) return;
    memmove(input + at + n, input + end, input_size - end);
    memcpy(input + at, text, n);
    input_size = input_size - (end - at) + n;
}

/* Bytes of this or another sample take the place of some, or push them on. */
static void splice(size_t at, bool insert) {
    const Sample *s = &samples[drawn((uint64_t)nsample)];
    if (!s->n) return;
    size_t from = drawn(s->n), n = drawn(s->n - from < 64 ? s->n - from : 64) + 1;
    if (insert) {
        if (input_size + n > MOST) return;
        memmove(input + at + n, input + at, input_size - at);
        input_size += n;
    } else if (n > input_size - at) {
        n = input_size - at;
    }
    memcpy(input + at, s->bytes + from, n);
}

static void cut_out(size_t at) {
    size_t n = drawn(input_size - at < 64 ? input_size - at : 64) + 1;
    memmove(input + at, input + at + n, input_size - at - n);
    input_size -= n;
}

/* A file's first bytes count most: half the changes are there. */
static void change(void) {
    if (!input_size) return;
    size_t at = drawn(drawn(2) && input_size > 512 ? 512 : input_size);
    switch (drawn(9)) {
    case 0: input[at] ^= (uint8_t)(1u << drawn(8)); break;
    case 1: input[at] = (uint8_t)drawn(256); break;
    case 2: input_size = at; break;
    case 3: splice(at, true); break;
    case 4: splice(at, false); break;
    case 5: cut_out(at); break;
    case 6: change_digits(at); break;
    default: put_number(at);
    }
}

int main(int argc, char **argv) {
    uint64_t seed = 1, count = 100000, seconds = 0, done = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--seed=", 7) == 0)
            seed = strtoull(argv[i] + 7, NULL, 10);
        else if (strncmp(argv[i], "--count=", 8) == 0)
            count = strtoull(argv[i] + 8, NULL, 10);
        else if (strncmp(argv[i], "--seconds=", 10) == 0)
            seconds = strtoull(argv[i] + 10, NULL, 10);
        else
            add_file(argv[i]);
    }
    if (!nsample) {
        fprintf(stderr, "usage: %s [--seed=S] [--count=N | --seconds=T] FILE...\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, note_crash);
    signal(SIGSEGV, note_crash);
    time_t end = time(NULL) + (time_t)seconds;
    for (; seconds ? time(NULL) < end : done < count; done++) {
        const Sample *s = &samples[done % (uint64_t)nsample];
        state = seed + done * 0x632be59bd9b4e019u;
        memcpy(input, s->bytes, s->n);
        input_size = s->n;
        for (uint64_t k = done < (uint64_t)nsample ? 0 : 1 + drawn(CHANGES); k; k--) change();
        LLVMFuzzerTestOneInput(input, input_size);
    }
    printf("%llu inputs\n", (unsigned long long)done);
    return 0;
}
