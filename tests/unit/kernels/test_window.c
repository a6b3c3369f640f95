/* test_window.c - reductions of windows, and where the largest of a window is. */
#include "kcheck.h"

static void window(const char *name, DType t, int limit) {
    int64_t x[8], y[8];
    KWindow attr;
    int rank = (int)below(5), select = strncmp(name, "select", 6) == 0;
    int scatter = strcmp(name, "select_and_scatter_add") == 0;
    for (int d = 0; d < rank; d++) {
        int single = rnd() % 2 != 0;
        attr.window[d] = single ? 1 : 1 + below(4);
        attr.stride[d] = single ? 1 : 1 + below(3);
        attr.low[d] = single ? 0 : below(5);
        x[d] = below(single && rnd() % 3 == 0 ? limit : 7);
        int64_t room = x[d] + attr.low[d] + (single ? 0 : below(4)) - attr.window[d];
        y[d] = room < 0 ? 0 : room / attr.stride[d] + 1;
    }
    Case c = {.name = name, .attr = &attr, .nin = 1 + select, .nout = 1};
    c.rtol = t == DT_F64 ? 1e-14 : t >= DT_BF16 ? 1e-6 : 0;
    c.atol = kt_is_float(t) ? (t == DT_F64 ? 1e-13 : 1e-4) : 0;
    c.in[0] = tensor(t, rank, x, ANY_BROADCAST);
    double range = kt_is_float(t) ? 9 : 0;
    if (rnd() % 2)
        fill(&c.in[0], -range, range);
    else
        fill(&c.in[0], 0, 2); /* ties */
    if (rnd() % 4 == 0 && kt_is_float(t) && strstr(name, "sum") == NULL) sprinkle(&c.in[0]);
    if (select) {
        c.in[1] = tensor(t, rank, scatter ? y : x, ANY_BROADCAST);
        fill(&c.in[1], -range, range);
    }
    c.out[0] = tensor(t, rank, scatter ? x : y, ANY);
    check_case(&c);
}

int main(void) {
    for (int k = 0; k < 60; k++)
        for (int t = DT_U8; t < DT_COUNT; t++) {
            window("reduce_window_max", (DType)t, 70);
            window("reduce_window_sum", (DType)t, 70);
            if (!kt_is_float((DType)t)) continue;
            window("select_and_scatter_add", (DType)t, 70);
            window("select_and_gather_add", (DType)t, 70);
        }
    return test_end();
}
