/* Which slots a process has. */
#include "ir/place.h"
#include "test.h"

static Ctx cx;

static const Mesh *mesh_of_8(int32_t process, int32_t each, const int32_t *devices) {
    static const char *const names[] = {"x", "y"};
    static const int32_t sizes[] = {4, 2};
    const Mesh *m = NULL;
    intern_free(&cx); /* meshes of another process are other meshes */
    CHECK(!intern_init(&cx));
    cx.process = process;
    cx.devices_each = each;
    CHECK(!mesh_of(&cx, 2, names, sizes, NULL, devices, &m));
    return m;
}

/* Every device of every process has a slot there, slots are counted without gaps, and the
 * coordinates of a slot lead back to it. */
static void check_all(const Mesh *m, uint32_t vary, int32_t world) {
    int32_t found[8] = {0};
    for (int32_t i = 0; i < m->ndevices; i++) {
        int32_t coord[MAX_AXES], p = place_process(m, i);
        mesh_coords(m, i, coord);
        CHECK(place_index(m, coord) == i);
        int32_t slot = place_slot(m, vary, p, coord);
        CHECK(slot >= 0 && slot < place_slots(m, vary, p));
        found[p] |= 1 << slot;
    }
    for (int32_t p = 0; p < world; p++) {
        int32_t before = -1, n = place_slots(m, vary, p);
        CHECK(found[p] == (1 << n) - 1 && place_is_in(m, p));
        for (int32_t slot = 0; slot < n; slot++) {
            int32_t coord[MAX_AXES];
            place_coords(m, vary, p, slot, coord);
            CHECK(place_slot(m, vary, p, coord) == slot);
            CHECK(place_process(m, place_index(m, coord)) == p);
            CHECK(place_number(m, vary, coord) > before);
            before = place_number(m, vary, coord);
        }
    }
}

int main(void) {
    static const int32_t row[] = {0, 1, 2, 3, 4, 5, 6, 7}, mixed[] = {5, 0, 3, 6, 1, 4, 7, 2};
    ctx_init(&cx);
    CHECK(!intern_init(&cx));
    for (int32_t each = 1; each <= 8; each *= 2)
        for (uint32_t vary = 0; vary < 4; vary++) {
            check_all(mesh_of_8(0, each, row), vary, 8 / each);
            check_all(mesh_of_8(0, each, mixed), vary, 8 / each);
        }
    const Mesh *m = mesh_of_8(1, 2, row); /* process 1 has devices 2 and 3: x = 1 */
    int32_t there[MAX_AXES] = {1, 1}, elsewhere[MAX_AXES] = {2, 0};
    CHECK(m->spread && place_slots(m, 3, 1) == 2 && place_slots(m, 1, 1) == 1);
    CHECK(place_is_in(m, 3) && !place_is_in(m, 4) && place_slots(m, 3, 4) == 0);
    CHECK(place_slot(m, 3, 1, there) == 1 && place_slot(m, 3, 1, elsewhere) == -1);
    CHECK(place_slot(m, 2, 1, elsewhere) == 0);
    CHECK(!mesh_of_8(0, 8, row)->spread && place_slots(NULL, 0, 0) == 1);
    intern_free(&cx);
    return test_end();
}
