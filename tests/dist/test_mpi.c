/* host/mpi over an MPI of this file's own, which only notes what it is asked for: how parts become
 * messages, also those that are longer than MPI counts, and what is said of what fails. */
#include "run/comm/comm.h"
#include "test.h"

#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Message {
    const char *data;
    int bytes, peer;
    bool send;
} Message;

enum { MOST = 16 };
static Message said[MOST];
static int n, fail_in, tested, waited, freed, finalized, level = MPI_THREAD_FUNNELED, there,
                                                         sharing = 1;

static int result(void) {
    return fail_in > 0 && --fail_in == 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int note(const void *data, int bytes, int peer, bool send, MPI_Request *r) {
    CHECK(n < MOST);
    said[n++] = (Message){data, bytes, peer, send};
    *r = MPI_REQUEST_NULL;
    return result();
}

int MPI_Isend(const void *data, int bytes, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *r) {
    CHECK(type == MPI_BYTE && tag == 0);
    (void)comm;
    return note(data, bytes, peer, true, r);
}
int MPI_Irecv(void *data, int bytes, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *r) {
    CHECK(type == MPI_BYTE && tag == 0);
    (void)comm;
    return note(data, bytes, peer, false, r);
}
int MPI_Testall(int count, MPI_Request *r, int *over, MPI_Status *status) {
    (void)r, (void)status;
    CHECK(count == n);
    tested++;
    *over = 0;
    return MPI_SUCCESS;
}
int MPI_Waitall(int count, MPI_Request *r, MPI_Status *status) {
    (void)r, (void)status;
    CHECK(count == n);
    waited++;
    return result();
}
int MPI_Error_string(int code, char *text, int *length) {
    *length = snprintf(text, MPI_MAX_ERROR_STRING, "error %d of MPI", code);
    return MPI_SUCCESS;
}
int MPI_Initialized(int *flag) {
    *flag = there;
    return MPI_SUCCESS;
}
int MPI_Init_thread(int *argc, char ***argv, int asked, int *got) {
    CHECK(!argc && !argv && asked == MPI_THREAD_FUNNELED);
    *got = level;
    return result();
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out) {
    *out = comm;
    return MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler h) {
    (void)comm;
    CHECK(h == MPI_ERRORS_RETURN);
    return MPI_SUCCESS;
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out) {
    (void)key, (void)info;
    CHECK(type == MPI_COMM_TYPE_SHARED);
    *out = comm;
    return MPI_SUCCESS;
}
int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    (void)comm;
    CHECK(from == MPI_IN_PLACE && type == MPI_INT && op == MPI_SUM);
    for (int i = 0; i < count; i++) ((int *)to)[i] *= sharing;
    return MPI_SUCCESS;
}
int MPI_Comm_free(MPI_Comm *comm) {
    (void)comm;
    freed++;
    return MPI_SUCCESS;
}
int MPI_Comm_rank(MPI_Comm comm, int *rank) {
    (void)comm;
    *rank = 2;
    return MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm comm, int *size) {
    (void)comm;
    *size = 5;
    return MPI_SUCCESS;
}
int MPI_Finalize(void) {
    finalized++;
    return MPI_SUCCESS;
}
int MPI_Abort(MPI_Comm comm, int code) {
    (void)comm;
    exit(code);
}

static Comm open_world(void) {
    CommOpen mpi_open;
    Comm c = {.version = 0};
    char error[256] = "";
    CHECKF(mpi_open(&c, error, sizeof error), "%s", error);
    return c;
}

/* All receives are there before the first send; what is empty is no message. */
static void test_messages(void) {
    enum { GIB = 1 << 30 };
    char *const memory = (char *)(uintptr_t)4096; /* which nobody reads */
    Comm c = open_world();
    const CommPart send[] = {{.peer = 1, .data = memory, .bytes = 2 * (size_t)GIB + 5},
                             {.peer = 3, .data = memory + 8, .bytes = GIB}},
                   recv[] = {{.peer = 4, .data = memory + 16, .bytes = 7},
                             {.peer = 0, .data = memory + 24, .bytes = 0},
                             {.peer = 3, .data = memory + 32, .bytes = (size_t)GIB + 1}};
    const Message wanted[] = {
        {memory + 16, 7, 4, false},       {memory + 32, GIB, 3, false},
        {memory + 32 + GIB, 1, 3, false}, {memory, GIB, 1, true},
        {memory + GIB, GIB, 1, true},     {memory + 2 * (size_t)GIB, 5, 1, true},
        {memory + 8, GIB, 3, true}};
    n = 0;
    void *request = c.start(c.self, send, 2, recv, 3);
    CHECK(request && n == 7);
    for (int i = 0; i < 7 && i < n; i++)
        CHECKF(said[i].data == wanted[i].data && said[i].bytes == wanted[i].bytes &&
                   said[i].peer == wanted[i].peer && said[i].send == wanted[i].send,
               "message %d: %d bytes for %d", i, said[i].bytes, said[i].peer);
    c.help(c.self, request);
    CHECK(tested == 1 && waited == 0);
    CHECK(c.wait(c.self, request) && waited == 1);
    for (int i = 1; i <= 8; i++) {
        char text[64];
        n = 0;
        fail_in = i;
        request = c.start(c.self, send, 2, recv, 3);
        CHECK(!request == (i < 8) && n == (i < 8 ? i : 7));
        if (request) CHECK(!c.wait(c.self, request));
        snprintf(text, sizeof text, "error %d of MPI", MPI_ERR_OTHER);
        CHECKF(strcmp(c.error(c.self), text) == 0, "%d: %s", i, c.error(c.self));
    }
    c.close(c.self);
}

static void test_world(void) {
    cpu_set_t mine;
    CommOpen mpi_open;
    Comm c;
    char error[256] = "";
    int status;
    CHECK(sched_getaffinity(0, sizeof mine, &mine) == 0);
    for (sharing = 1; sharing < 4; sharing++) {
        freed = finalized = 0;
        c = open_world();
        CHECK(c.version == COMM_VERSION && c.rank == 2 && c.world == 5);
        double cores = (double)CPU_COUNT(&mine) / sharing;
        CHECKF(c.cores > cores - 1e-6 && c.cores < cores + 1e-6, "%g cores, not %g", c.cores,
               cores);
        CHECK(freed == 1 && finalized == 0);
        c.close(c.self);
        CHECK(freed == 2 && finalized == 1);
    }
    sharing = 1;
    there = 1;
    CHECK(!mpi_open(&c, error, sizeof error) && strcmp(error, "MPI is in use already") == 0);
    there = 0;
    level = MPI_THREAD_SINGLE;
    CHECK(!mpi_open(&c, error, sizeof error) && strcmp(error, "MPI_Init_thread failed") == 0);
    level = MPI_THREAD_FUNNELED;
    error[0] = '\0';
    fail_in = 1;
    CHECK(!mpi_open(&c, error, sizeof error) && strcmp(error, "MPI_Init_thread failed") == 0);
    c = open_world();
    pid_t child = fork();
    if (child == 0) c.abort(c.self, 9);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 9);
    c.close(c.self);
}

int main(void) {
    test_messages();
    test_world();
    return test_end();
}
