/* mpi.c - the transport over MPI: the library meshlua_mpi.so, opened where a launcher of MPI has
 * started several processes. */
#include "run/comm/comm.h"
#include "mpi/segments.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGEST = 1 << 30 }; /* bytes of one message: MPI counts them in an int */

typedef struct World {
    MPI_Comm comm;
    char error[MPI_MAX_ERROR_STRING];
} World;

typedef struct MpiRequest {
    int n;
    MPI_Request each[];
} MpiRequest;

static int failed(World *w, int code) {
    int n;
    if (code == MPI_SUCCESS) return 0;
    MPI_Error_string(code, w->error, &n);
    return 1;
}

static size_t messages(const CommPart *part, int32_t n) {
    size_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (part[i].bytes + LARGEST - 1) / LARGEST;
    return sum;
}

static int begin(World *w, MpiRequest *r, const CommPart *part, int32_t n, int send) {
    for (int32_t i = 0; i < n; i++)
        for (size_t at = 0; at < part[i].bytes; at += LARGEST) {
            size_t rest = part[i].bytes - at;
            int bytes = rest < LARGEST ? (int)rest : LARGEST, peer = part[i].peer;
            char *data = part[i].data + at;
            MPI_Request *one = &r->each[r->n++];
            if (failed(w, send ? MPI_Isend(data, bytes, MPI_BYTE, peer, 0, w->comm, one)
                               : MPI_Irecv(data, bytes, MPI_BYTE, peer, 0, w->comm, one)))
                return 0;
        }
    return 1;
}

static void *start(void *self, const CommPart *send, int32_t nsend, const CommPart *recv,
                   int32_t nrecv) {
    World *w = self;
    size_t n = messages(send, nsend) + messages(recv, nrecv);
    MpiRequest *r = malloc(sizeof *r + sizeof *r->each * n);
    if (!r) {
        snprintf(w->error, sizeof w->error, "out of memory for messages");
        return NULL;
    }
    r->n = 0;
    if (begin(w, r, recv, nrecv, 0) && begin(w, r, send, nsend, 1)) return r;
    return NULL; /* r stays: what was begun is MPI's to finish */
}

/* What went wrong is found by wait_all. */
static void help(void *self, void *request) {
    MpiRequest *r = request;
    int over;
    (void)self;
    MPI_Testall(r->n, r->each, &over, MPI_STATUSES_IGNORE);
}

static int wait_all(void *self, void *request) {
    MpiRequest *r = request;
    int bad = failed(self, MPI_Waitall(r->n, r->each, MPI_STATUSES_IGNORE));
    free(r);
    return !bad;
}

static const char *error_text(void *self) {
    return ((World *)self)->error;
}

static void abort_all(void *self, int code) {
    MPI_Abort(((World *)self)->comm, code);
    abort();
}

static void close_world(void *self) {
    World *w = self;
    MPI_Comm_free(&w->comm);
    MPI_Finalize();
    segments_end();
    free(w);
}

/* How many processors there are for this process: those that it may run on, each shared with the
 * other processes on this host that may. */
static double share_of_cores(const World *w) {
    static int users[CPU_SETSIZE];
    cpu_set_t mine;
    MPI_Comm here;
    double share = 0;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 1;
    for (int i = 0; i < CPU_SETSIZE; i++) users[i] = CPU_ISSET(i, &mine) != 0;
    MPI_Comm_split_type(w->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Allreduce(MPI_IN_PLACE, users, CPU_SETSIZE, MPI_INT, MPI_SUM, here);
    MPI_Comm_free(&here);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &mine)) share += 1.0 / users[i];
    return share;
}

static int init(void) {
    int level, ours = segments_begin();
    int done = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) == MPI_SUCCESS;
    if (ours) segments_begun();
    return done && level >= MPI_THREAD_FUNNELED;
}

__attribute__((visibility("default"))) CommOpen mpi_open;
int mpi_open(Comm *comm, char *error, size_t size) {
    int there;
    MPI_Initialized(&there);
    World *w = calloc(1, sizeof *w);
    if (there || !w || !init()) {
        snprintf(error, size, there ? "MPI is in use already" : "MPI_Init_thread failed");
        free(w);
        return 0;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &w->comm);
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    *comm = (Comm){.version = COMM_VERSION,
                   .self = w,
                   .start = start,
                   .wait = wait_all,
                   .help = help,
                   .error = error_text,
                   .abort = abort_all,
                   .close = close_world};
    comm->cores = share_of_cores(w);
    MPI_Comm_rank(w->comm, &comm->rank);
    MPI_Comm_size(w->comm, &comm->world);
    return 1;
}
