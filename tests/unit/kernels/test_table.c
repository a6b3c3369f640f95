/* test_table.c - every level has every kernel, under the names of kernel.h. */
#include "kcheck.h"

int main(void) {
    static const char *const names[] = {
        "fused",
        "sum",
        "sum_squares",
        "max",
        "min",
        "all",
        "any",
        "argmax",
        "argmin",
        "matmul",
        "take",
        "scatter_add",
        "concat",
        "pad",
        "sort",
        "softmax",
        "softmax_grad",
        "log_softmax",
        "layer_norm",
        "layer_norm_grad",
        "rms_norm",
        "rms_norm_grad",
        "softmax_cross_entropy",
        "softmax_cross_entropy_grad",
        "softmax_cross_entropy_both",
        "attention",
        "attention_grad",
        "masked_attention",
        "masked_attention_grad",
        "dropout",
        "rope",
        "adamw",
        "copy",
        "tree_sum",
        "scatter_set",
        "top_k",
        "dynamic_slice",
        "dynamic_update_slice",
        "cumsum",
        "cumprod",
        "cummax",
        "cummin",
        "conv",
        "conv_grad_kernel",
        "reduce_window_max",
        "reduce_window_sum",
        "select_and_scatter_add",
        "select_and_gather_add",
    };
    static const char *const levels[] = {"naive", "default", "v3", "v4"};
    const int count = sizeof names / sizeof *names;
    for (int l = 0; l < 4; l++) {
        const KernelRow *row = k_cpu_table(levels[l]);
        CHECK(row || l >= 2);
        for (int k = 0; row && k < count; k++) CHECK(kc_row(levels[l], names[k]) != NULL);
        int rows = 0;
        while (row && row[rows].name) rows++;
        CHECK(!row || rows == count);
    }
    CHECK(k_cpu_table("v9") == NULL);
    CHECK(k_cpu_table(k_cpu_best_level()) != NULL);
    printf("best level: %s\n", k_cpu_best_level());
    return test_end();
}
