/* Which slots a domain has, and a process with one or more of them. */
#include "ir/place.h"
#include "test.h"

static Ctx cx;

enum { MANY = 160 }; /* more slots than a word has bits */

static const Mesh *mesh_with(int32_t x, int32_t process, int32_t domains, int32_t each,
                             const int32_t *devices) {
    static const char *const names[] = {"x", "y"};
    const int32_t sizes[] = {x, 2};
    const Mesh *m = NULL;
    intern_free(&cx); /* meshes of another process are other meshes */
    CHECK(!intern_init(&cx));
    cx.domain = process * domains;
    cx.domains = domains;
    cx.domain_devices = each;
    CHECK(!mesh_of(&cx, 2, names, sizes, NULL, devices, &m));
    return m;
}

static const Mesh *mesh_of_8(int32_t process, int32_t domains, int32_t each,
                             const int32_t *devices) {
    return mesh_with(4, process, domains, each, devices);
}

/* Every device of every domain has a slot there, slots are counted without gaps, and the
 * coordinates of a slot lead back to it. */
static void check_all(const Mesh *m, uint32_t vary, int32_t domains) {
    bool found[8][MANY] = {0};
    for (int32_t i = 0; i < m->ndevices; i++) {
        int32_t coord[MAX_AXES], p = place_domain(m, i);
        mesh_coords(m, i, coord);
        CHECK(place_index(m, coord) == i);
        int32_t slot = place_slot(m, vary, p, coord);
        CHECK(slot >= 0 && slot < place_slots(m, vary, p));
        found[p][slot] = true;
    }
    for (int32_t p = 0; p < domains; p++) {
        int32_t before = -1, n = place_slots(m, vary, p);
        for (int32_t slot = 0; slot < MANY; slot++) CHECK(found[p][slot] == (slot < n));
        for (int32_t slot = 0; slot < n; slot++) {
            int32_t coord[MAX_AXES];
            place_coords(m, vary, p, slot, coord);
            CHECK(place_slot(m, vary, p, coord) == slot);
            CHECK(place_domain(m, place_index(m, coord)) == p);
            CHECK(place_number(m, vary, coord) > before);
            before = place_number(m, vary, coord);
        }
    }
}

/* The slots of a process are those of its domains, one after the other. */
static void check_own(const Mesh *m, uint32_t vary) {
    int32_t n = place_own_slots(m, vary), slot = 0;
    uint32_t seen = 0;
    for (int32_t k = 0; k < m->domains; k++) {
        CHECK(place_own_first(m, vary, k) == slot);
        for (int32_t s = 0; s < place_slots(m, vary, m->domain + k); s++, slot++) {
            int32_t coord[MAX_AXES];
            place_own_coords(m, vary, slot, coord);
            CHECK(place_own_domain(m, vary, slot) == k && place_is_own(m, place_index(m, coord)));
            CHECK(place_domain(m, place_index(m, coord)) == m->domain + k);
            CHECK(place_own_slot(m, vary, coord) == slot);
            seen |= 1u << place_number(m, vary, coord);
        }
    }
    CHECK(slot == n && place_own_first(m, vary, m->domains) == n);
    CHECK(place_own_all(m, vary) == (seen == (1u << mesh_product(m, vary)) - 1));
}

int main(void) {
    static const int32_t row[] = {0, 1, 2, 3, 4, 5, 6, 7}, mixed[] = {5, 0, 3, 6, 1, 4, 7, 2};
    ctx_init(&cx);
    CHECK(!intern_init(&cx));
    for (int32_t each = 1; each <= 8; each *= 2)
        for (uint32_t vary = 0; vary < 4; vary++) {
            check_all(mesh_of_8(0, 1, each, row), vary, 8 / each);
            check_all(mesh_of_8(0, 1, each, mixed), vary, 8 / each);
        }
    int32_t many[MANY];
    for (int32_t i = 0; i < MANY; i++) many[i] = i * 37 % MANY;
    for (uint32_t vary = 0; vary < 4; vary++)
        check_all(mesh_with(MANY / 2, 0, 1, 40, many), vary, 4);
    for (int32_t domains = 1; domains <= 8; domains *= 2)
        for (int32_t each = 1; each * domains <= 8; each *= 2)
            for (uint32_t vary = 0; vary < 4; vary++) {
                check_own(mesh_of_8(8 / each / domains - 1, domains, each, row), vary);
                check_own(mesh_of_8(0, domains, each, mixed), vary);
            }
    const Mesh *m = mesh_of_8(1, 1, 2, row); /* process 1 has devices 2 and 3: x = 1 */
    int32_t there[MAX_AXES] = {1, 1}, elsewhere[MAX_AXES] = {2, 0};
    CHECK(m->spread && place_slots(m, 3, 1) == 2 && place_slots(m, 1, 1) == 1);
    CHECK(place_has_own(m) && place_slots(m, 3, 4) == 0 && place_own_all(m, 2) &&
          !place_own_all(m, 1));
    CHECK(place_slot(m, 3, 1, there) == 1 && place_slot(m, 3, 1, elsewhere) == -1);
    CHECK(place_slot(m, 2, 1, elsewhere) == 0);
    m = mesh_of_8(0, 2, 4, row); /* two domains of a process: x = 0, 1 and x = 2, 3 */
    CHECK(m->spread && place_own_slots(m, 2) == 4 && place_own_slots(m, 3) == 8);
    CHECK(place_own_slot(m, 2, elsewhere) == 2 && place_own_domain(m, 2, 2) == 1);
    CHECK(!place_has_own(mesh_of_8(4, 1, 2, row)));
    CHECK(!mesh_of_8(0, 1, 8, row)->spread && place_own_slots(NULL, 0) == 1);
    CHECK(place_own_first(NULL, 0, 0) == 0 && place_own_domain(NULL, 0, 0) == 0);
    intern_free(&cx);
    return test_end();
}
