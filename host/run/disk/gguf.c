/* gguf.c */
#include "run/disk/catalog_reader.h"
Err gguf_open(Catalog *c) {
    return err_set(c->cx, E_UNSUPPORTED, "%s: gguf is not read yet", c->path);
}
Err gguf_lay_out(Catalog *c, Str *header) {
    (void)header;
    return err_set(c->cx, E_UNSUPPORTED, "gguf is not written yet");
}
