/* test_table.c - every level has every kernel that the naive table has, and no other. */
#include "kcheck.h"

static int count(const KernelRow *row) {
    int n = 0;
    while (row[n].name) n++;
    return n;
}

int main(void) {
    static const char *const levels[] = {"naive", "default", "v3", "v4"};
    const KernelRow *naive = k_cpu_table("naive");
    CHECK(count(naive) > 0);
    for (int l = 0; l < 4; l++) {
        const KernelRow *row = k_cpu_table(levels[l]);
        CHECK(row || l >= 2);
        for (int k = 0; row && naive[k].name; k++) CHECK(kc_row(levels[l], naive[k].name) != NULL);
        for (int k = 0; row && row[k].name; k++) /* none of them twice */
            CHECK(kc_row(levels[l], row[k].name) == &row[k]);
        CHECK(!row || count(row) == count(naive));
    }
    CHECK(k_cpu_table("v9") == NULL);
    CHECK(k_cpu_table(k_cpu_best_level()) != NULL);
    printf("best level: %s\n", k_cpu_best_level());
    return test_end();
}
