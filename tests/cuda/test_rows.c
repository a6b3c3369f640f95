/* test_rows.c - a plan runs on GPUs as it does on CPUs: every kernel of the CPU's table has a row
 * of that name in CUDA's, but those that are LAPACK's; and CUDA's has no other. */
#include <string.h>
#include "cuda/row.h"
#include "test.h"

/* How many rows of CUDA's have the name. */
static int rows_of(const char *name) {
    int n = 0;
    for (const CudaRow *row = k_cuda_table(); row->name; row++) n += strcmp(row->name, name) == 0;
    return n;
}

static int is_on_cpu(const char *name) {
    const KernelRow *row = k_cpu_table("naive");
    while (row->name && strcmp(row->name, name) != 0) row++;
    return row->name != NULL;
}

int main(void) {
    for (const KernelRow *row = k_cpu_table("naive"); row->name; row++)
        CHECKF(rows_of(row->name) == (strncmp(row->name, "lapack_", 7) != 0),
               "%d CUDA rows for kernel %s", rows_of(row->name), row->name);
    for (const CudaRow *row = k_cuda_table(); row->name; row++)
        CHECKF(row->add && is_on_cpu(row->name), "%s", row->name);
    return test_end();
}
