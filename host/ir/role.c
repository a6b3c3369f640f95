#include "ir/role.h"

const char *role_name(Role role) {
    static const char *const name[] = {"forward", "backward", "gradient", "recomputed"};
    return name[role];
}
