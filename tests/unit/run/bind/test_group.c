/* How a reduction's tree is cut: what processes reduce first, and the tree above, give the very
 * bits of the whole tree. */
#include "run/bind/group.h"
#include "test.h"

#include <string.h>

enum { MOST = 40 };

/* The sum of the whole tree. */
static float whole(const float *x, int32_t n) {
    if (n == 1) return x[0];
    int32_t half = tree_half(n);
    return whole(x, half) + whole(x + half, n - half);
}

/* The sum of the roots' sums, by the tree that the cut left. */
static float above(const float *sum, const Subtree **root, int32_t members, int32_t *at) {
    if ((*root)->n == members) {
        ++*root;
        return sum[(*at)++];
    }
    int32_t half = tree_half(members);
    float a = above(sum, root, half, at);
    return a + above(sum, root, members - half, at);
}

static void check(const char *name, const int32_t *process, int32_t n) {
    Subtree root[MOST];
    float x[MOST], sum[MOST];
    int32_t count = group_cut(process, n, root), next = 0, at = 0;
    for (int32_t i = 0; i < n; i++) x[i] = 1.0f / (float)(3 * i + 1) * (i % 3 == 1 ? -1e3f : 1);
    for (int32_t k = 0; k < count; k++) {
        CHECKF(root[k].first == next, "%s: root %d", name, (int)k);
        for (int32_t i = next; i < next + root[k].n; i++)
            CHECKF(process[i] == root[k].domain, "%s: member %d", name, (int)i);
        sum[k] = whole(x + next, root[k].n);
        next += root[k].n;
    }
    CHECKF(next == n, "%s: %d of %d members", name, (int)next, (int)n);
    const Subtree *first = root;
    float expected = whole(x, n), found = above(sum, &first, n, &at);
    CHECKF(memcmp(&expected, &found, sizeof found) == 0, "%s", name);
    if (!group_is_even(root, count)) return;
    found = whole(sum, count);
    CHECKF(memcmp(&expected, &found, sizeof found) == 0, "%s: even", name);
}

/* Roots of these sizes, and whether their tree is that of as many members. */
static void check_cut(const char *name, const int32_t *process, int32_t n, const int32_t *sizes,
                      int32_t count, bool even) {
    Subtree root[MOST];
    CHECKF(group_cut(process, n, root) == count, "%s", name);
    for (int32_t k = 0; k < count; k++) CHECKF(root[k].n == sizes[k], "%s: %d", name, (int)k);
    CHECKF(group_is_even(root, count) == even, "%s", name);
    check(name, process, n);
}

/* ---- who is in a group ---- */

enum { DEVICES = 12 };

/* On a mesh of 2 x 3 x 2: those that agree along all other axes, in the order of theirs. */
static void check_groups(const Mesh *m, uint8_t axes, const char *name) {
    int32_t coord[MAX_AXES], other[MAX_AXES], member[MAX_AXES];
    Plan plan = {.naxes = 3};
    PlanStep step = {.coll = {.axes = axes}};
    bool crosses = false;
    for (int a = 0; a < 3; a++) plan.axis_size[a] = m->size[a];
    DeviceGroup g = group_of(&plan, &step);
    for (int32_t i = 0; i < DEVICES; i++) {
        int32_t n = 0, first = -1, mine = -1;
        mesh_coords(m, i, coord);
        for (int32_t k = 0; k < DEVICES; k++) {
            bool same = true;
            mesh_coords(m, k, other);
            for (int a = 0; a < 3; a++) same &= axes >> a & 1 || coord[a] == other[a];
            if (!same) continue;
            if (first < 0) first = k;
            if (k == i) mine = n;
            group_member(&g, coord, n, member);
            CHECKF(place_index(m, member) == k, "%s: member %d of %d's", name, n, i);
            CHECKF(group_number(&g, other) == n, "%s: %d", name, k);
            crosses |= place_domain(m, k) != place_domain(m, i);
            n++;
        }
        CHECKF(g.size == n && group_number(&g, coord) == mine, "%s: %d members", name, n);
        CHECKF(group_first(&g, m, coord) == first, "%s: %d", name, i);
    }
    CHECKF(group_crosses(&g, m) == crosses, "%s", name);
}

static void test_groups(void) {
    static const char *const names[] = {"x", "y", "z"};
    static const int32_t sizes[] = {2, 3, 2};
    static const int32_t row[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                         mixed[] = {5, 0, 3, 6, 1, 4, 7, 2, 11, 10, 8, 9};
    for (int32_t each = 1; each <= DEVICES; each++) {
        Ctx cx;
        const Mesh *m = NULL, *other = NULL;
        if (DEVICES % each) continue;
        ctx_init(&cx);
        CHECK(!intern_init(&cx));
        cx.domains = 1;
        cx.domain_devices = each;
        CHECK(!mesh_of(&cx, 3, names, sizes, NULL, row, &m));
        CHECK(!mesh_of(&cx, 3, names, sizes, NULL, mixed, &other));
        for (uint8_t axes = 1; axes < 8; axes++) {
            check_groups(m, axes, "in order");
            check_groups(other, axes, "mixed");
        }
        intern_free(&cx);
    }
}

int main(void) {
    test_groups();
#define CUT(name, n, even, ...)                                                                    \
    check_cut(name, (const int32_t[])__VA_ARGS__, n, sizes, sizeof sizes / sizeof *sizes, even)
    {
        int32_t sizes[] = {4, 4};
        CUT("2 x 4", 8, true, {0, 0, 0, 0, 1, 1, 1, 1});
    }
    {
        int32_t sizes[] = {2, 1, 1, 2};
        CUT("2 x 3", 6, false, {0, 0, 0, 1, 1, 1});
    }
    {
        int32_t sizes[] = {2, 2, 2};
        CUT("3 x 2", 6, true, {0, 0, 1, 1, 2, 2});
    }
    {
        int32_t sizes[] = {1, 1, 1};
        CUT("3 x 1", 3, true, {0, 1, 2});
    }
    {
        int32_t sizes[] = {4, 1};
        CUT("5 members", 5, true, {0, 0, 0, 0, 1});
    }
    {
        int32_t sizes[] = {2, 1, 1, 1};
        CUT("5 members, split", 5, false, {0, 0, 0, 1, 1});
    }
    {
        int32_t sizes[] = {1, 1, 1, 1, 1, 1};
        CUT("interleaved", 6, true, {0, 1, 0, 1, 0, 1});
    }
    {
        int32_t sizes[] = {6};
        CUT("one process", 6, true, {3, 3, 3, 3, 3, 3});
    }
    /* All ways to spread up to 6 members over 3 processes, and longer ones at random. */
    int32_t process[MOST];
    for (int32_t n = 1; n <= 6; n++) {
        int32_t ways = 1;
        for (int32_t i = 0; i < n; i++) ways *= 3;
        for (int32_t way = 0; way < ways; way++) {
            for (int32_t i = 0, rest = way; i < n; i++, rest /= 3) process[i] = rest % 3;
            check("any", process, n);
        }
    }
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        int32_t n = 7 + round % (MOST - 7);
        for (int32_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            process[i] = i && seed >> 30 ? process[i - 1] : (int32_t)(seed >> 20) % 5;
        }
        check("random", process, n);
    }
    return test_end();
}
