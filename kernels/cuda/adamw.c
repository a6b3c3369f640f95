/* adamw.c - the row of adamw.cu. The operands may be those of several parameters, one after the
 * other: those of one kind that follow one another share a launch. */
#include "view.h"

enum { THREADS = 256, MANY = 32, INPUTS = 7, OUTPUTS = 3, TENSORS = 7 };

typedef struct Member {
    const KTensor *t[TENSORS], *scalar; /* p, g, mu, nu, and p, mu, nu */
    int dense, vector;
    int64_t count;
} Member;

static Member member_of(const KArgs *a, int i) {
    const KTensor *in = &a->in[i * INPUTS], *out = &a->out[i * OUTPUTS];
    Member m = {.t = {&in[0], &in[1], &in[2], &in[3], &out[0], &out[1], &out[2]},
                .scalar = &in[4],
                .dense = 1,
                .vector = 4,
                .count = cuda_count(&in[0])};
    for (int k = 0; k < TENSORS; k++) {
        m.dense = m.dense && cuda_is_dense(m.t[k]);
        if (m.t[k]->dtype == DT_F64) m.vector = 2;
    }
    if (!m.dense) m.vector = 1;
    return m;
}

/* Whether one launch does for both. */
static int alike(const Member *m, const Member *n) {
    for (int k = 0; k < TENSORS; k++)
        if (m->t[k]->dtype != n->t[k]->dtype) return 0;
    return m->dense && n->dense;
}

/* n members from `first` on, all of which are as it is. */
static void launch(const KArgs *a, Launches *p, int first, int n) {
    Member m = member_of(a, first);
    CudaView places[TENSORS] = {{.rank = 0}};
    int room = m.dense ? MANY : 1; /* also for few of them: one piece of device code does */
    struct {
        int64_t count[MANY], end[MANY];
    } all = {{0}, {0}};
    int64_t *count = all.count, *end = all.count + room, blocks = 0;
    for (int i = 0; i < room; i++) {
        int64_t elements = i < n ? cuda_count(&a->in[(first + i) * INPUTS]) : 0;
        blocks += cuda_ceil_div(elements, (int64_t)THREADS * m.vector);
        count[i] = elements;
        end[i] = blocks;
    }
    for (int k = 0; k < TENSORS && !m.dense; k++) places[k] = cuda_view_of(m.t[k], m.t[k]->rank);
    cuda_launch(p, "adamw.cu", "adamw", blocks, THREADS);
    cuda_define_type(p, "PARAM", m.t[0]->dtype);
    cuda_define_type(p, "GRAD", m.t[1]->dtype);
    cuda_define_type(p, "MU", m.t[2]->dtype);
    cuda_define_type(p, "NU", m.t[3]->dtype);
    cuda_define_type(p, "SCALAR", m.scalar->dtype);
    cuda_define(p, "VEC", "%d", m.vector);
    cuda_define(p, "DENSE", "%d", m.dense);
    cuda_define(p, "MANY", "%d", room);
    cuda_operands(p, first * INPUTS, n * INPUTS, room * INPUTS);
    cuda_operands(p, a->nin + first * OUTPUTS, n * OUTPUTS, room * OUTPUTS);
    cuda_bytes(p, all.count, 2 * (size_t)room * sizeof(int64_t));
    cuda_bytes(p, a->attr, sizeof(KAdamw));
    cuda_bytes(p, places, sizeof places);
}

static int adamw(const KArgs *a, Launches *p) {
    int members = a->nin / INPUTS;
    for (int i = 0, n; i < members; i += n) {
        Member first = member_of(a, i);
        if (first.scalar->dtype != (first.t[0]->dtype == DT_F64 ? DT_F64 : DT_F32)) return 0;
        for (n = 1; n < MANY && i + n < members; n++) {
            Member next = member_of(a, i + n);
            if (!alike(&first, &next)) break;
        }
        launch(a, p, i, n);
    }
    return 1;
}

const CudaRow k_cuda_rows_adamw[] = {
    {"adamw", adamw},
    {NULL, NULL},
};
