/* dynamic.c - dynamic_slice and dynamic_update_slice (kernel.h). Any strides. */
#include "movement.h"
#include "walk.h"

static const char file[] = "dynamic.cu";

typedef struct Part { /* dynamic.cu has the same */
    int64_t dims[K_MAX_RANK], strides[K_MAX_RANK];
    int64_t other[K_MAX_RANK], other_stride[K_MAX_RANK];
    int64_t offset[K_MAX_RANK], last[K_MAX_RANK], size[K_MAX_RANK];
    int64_t start_stride;
    int32_t rank, moved;
    int32_t small;
} Part;

static Part part_of(const KArgs *a, const KTensor *part, const KTensor *other,
                    const KTensor *starts) {
    const KDynamic *attr = a->attr;
    Part p = {.rank = part->rank, .start_stride = part->rank ? starts->strides[0] : 0};
    for (int d = 0; d < p.rank; d++) {
        p.dims[d] = part->dims[d];
        p.strides[d] = part->strides[d];
        p.other[d] = other->dims[d];
        p.other_stride[d] = other->strides[d];
        p.offset[d] = a->offsets[d];
        p.size[d] = attr->size[d];
        p.last[d] = p.size[d] - p.dims[d];
        if (p.last[d] != 0 || p.offset[d] != 0) p.moved = d + 1;
    }
    return p;
}

/* Dims behind those that move make one where they can, and then units; their bytes. */
static int64_t widen(Part *p, int64_t size) {
    int64_t unit = 16;
    int d = p->rank - 1;
    for (; d > p->moved; d--, p->rank--) {
        if (p->strides[d - 1] != p->strides[d] * p->dims[d] ||
            p->other_stride[d - 1] != p->other_stride[d] * p->dims[d] || p->other[d] != p->dims[d])
            break;
        p->dims[d - 1] *= p->dims[d];
        p->other[d - 1] *= p->dims[d];
        p->strides[d - 1] = p->strides[d];
        p->other_stride[d - 1] = p->other_stride[d];
    }
    if (d < p->moved || p->strides[d] != size || p->other_stride[d] != size) return size;
    while (p->dims[d] * size % unit || p->other[d] * size % unit) unit /= 2;
    for (int k = 0; k < d; k++)
        while (p->strides[k] % unit || p->other_stride[k] % unit) unit /= 2;
    p->dims[d] = p->dims[d] * size / unit;
    p->other[d] = p->other[d] * size / unit;
    p->strides[d] = p->other_stride[d] = unit;
    return unit;
}

static void add_part(Launches *p, const char *entry, Part part, int64_t size,
                     const int operand[3]) {
    int64_t unit = widen(&part, size), n = 1;
    for (int d = 0; d < part.rank; d++) n *= part.dims[d];
    part.small = n <= INT32_MAX;
    walk_launch(p, file, entry, n, size, unit);
    for (int k = 0; k < 3; k++) cuda_operand(p, operand[k]);
    cuda_bytes(p, &part, sizeof part);
    cuda_i64(p, n);
}

static int dynamic_slice(const KArgs *a, Launches *p) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    add_part(p, "dynamic_slice", part_of(a, y, x, &a->in[1]), cuda_size(y->dtype),
             (int[]){0, 1, 2});
    return 1;
}

/* In two steps, so that where y is x only the update is moved. */
static int dynamic_update_slice(const KArgs *a, Launches *p) {
    const KTensor *y = &a->out[0];
    movement_copy(p, &a->in[0], 0, y, 3, 0);
    add_part(p, "dynamic_update", part_of(a, &a->in[1], y, &a->in[2]), cuda_size(y->dtype),
             (int[]){1, 2, 3});
    return 1;
}

const CudaRow k_cuda_rows_dynamic[] = {
    {"dynamic_slice", dynamic_slice},
    {"dynamic_update_slice", dynamic_update_slice},
    {NULL, NULL},
};
