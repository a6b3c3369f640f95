/* npy.c */
#include "run/disk/catalog_reader.h"
Err npy_open(Catalog *c) {
    return err_set(c->cx, E_UNSUPPORTED, "%s: npy is not read yet", c->path);
}
Err npy_lay_out(Catalog *c, Str *header) {
    (void)header;
    return err_set(c->cx, E_UNSUPPORTED, "npy is not written yet");
}
