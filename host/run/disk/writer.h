/* writer.h - what this process writes of tensors, into files, by a thread of its own.
 *
 * Tensors that are added are held until they are written: their buffers are retained, so that a
 * step which writes its arguments takes other memory meanwhile (place_param in run/exec/call.c); it
 * asks for them (CtxHolder) before it does, and where there is none waits for the thread. What lies
 * in a device's memory is copied to the host's at once, so that addresses there never move. The
 * thread reads this memory and writes files; it counts no references, allocates nothing and sees no
 * Ctx. Everything here is the main thread's to call. */
#ifndef MESHLUA_RUN_DISK_WRITER_H
#define MESHLUA_RUN_DISK_WRITER_H

#include "base/hash.h"
#include "run/disk/piece.h"
#include "run/disk/units.h"
#include "run/memory/tensor.h"

typedef struct Writer Writer;

/* A unit of a tensor, written: `tensor` is the index that it was added with. */
typedef struct WriterUnit {
    int32_t tensor;
    UnitBox box;
    HashWide hash;
} WriterUnit;

/* `memory`: bytes that it may hold while a thread writes; 0: any. */
Writer *writer_new(Ctx *cx, size_t memory);
/* Waits for the thread, which stops at the next unit, closes files, gives memory back. */
void writer_free(Writer *w);

/* Opens a file for writing, made where it is missing and `create` says so, never through a link.
 * It gets `size` bytes (< 0: as many as are written), the header at its begin. */
Err writer_file(Writer *w, const char *path, const void *header, size_t nheader, int64_t size,
                bool create, int32_t *number) MUST_CHECK;
/* What process `rank` writes of the tensor, by units.h. */
Err writer_add(Writer *w, Tensor *t, int32_t index, UnitsJob job, int32_t rank,
               const PieceMap *piece, int32_t n) MUST_CHECK;
/* Bytes that it will write; that it holds of the state: retained, or copied. */
int64_t writer_bytes(const Writer *w);
int64_t writer_held(const Writer *w);
/* Starts the thread. False where only writer_run can do it, during which nothing else takes memory:
 * it would hold more than `memory`, or there is no thread to be had. */
bool writer_start(Writer *w);
/* Writes everything now. */
void writer_run(Writer *w);
bool writer_is_done(const Writer *w);
/* Waits. E_IO with the path: a file could not be written; E_VALUE: a value that what is written
 * cannot hold. */
Err writer_wait(Writer *w) MUST_CHECK;
double writer_seconds(const Writer *w);
const WriterUnit *writer_units(const Writer *w, int32_t *n);

#endif
