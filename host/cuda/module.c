#include "cuda/module.h"
#include "cuda/cache.h"
#include "cuda/compile.h"
#include "cuda/source.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define KIND "cubin"

enum { MOST_COMPILERS = 16 };

typedef enum State { WAITS, IN_WORK, DONE } State;

struct Module {
    CacheKey key;
    State state;
    int32_t major, minor;
    char *source; /* until it is loaded */
    char *cubin;  /* from DONE until it is loaded; NULL: see `error` */
    size_t size;
    int from_disk;
    cudaLibrary_t library; /* NULL until it is loaded */
    char error[2048];
};

struct Modules {
    pthread_mutex_t lock;
    pthread_cond_t change; /* of a state, or of what waits */
    Module **list;
    size_t n, most;
    size_t next; /* those before it do not wait any more */
    pthread_t thread[MOST_COMPILERS];
    int nthread, most_threads;
    int stop;
    const char *cache;
    int version;     /* of NVRTC: that of the runtime */
    CacheKey common; /* what decides every module: the files, the compiler */
};

/* ---- compilers ---- */

/* Fills cubin or error. Runs on any thread, without the lock. */
static void compile(const Modules *all, Module *m) {
    if (!compile_source(m->source, all->version, m->major, m->minor, &m->cubin, &m->size, m->error,
                        sizeof m->error))
        m->cubin = NULL;
    else
        cache_write(all->cache, KIND, m->key, m->cubin, m->size);
}

/* Another process may have compiled it since it was looked for. */
static void find_or_compile(const Modules *all, Module *m) {
    m->cubin = cache_read(all->cache, KIND, m->key, &m->size);
    m->from_disk = m->cubin != NULL;
    if (!m->cubin) compile(all, m);
}

static void work_on(Modules *all, Module *m) { /* with the lock */
    m->state = IN_WORK;
    pthread_mutex_unlock(&all->lock);
    find_or_compile(all, m);
    pthread_mutex_lock(&all->lock);
    m->state = DONE;
    pthread_cond_broadcast(&all->change);
}

static Module *next_waiting(Modules *all) {
    while (all->next < all->n && all->list[all->next]->state != WAITS) all->next++;
    return all->next < all->n ? all->list[all->next] : NULL;
}

static void *compiler(void *argument) {
    Modules *all = argument;
    pthread_mutex_lock(&all->lock);
    while (!all->stop) {
        Module *m = next_waiting(all);
        if (m)
            work_on(all, m);
        else
            pthread_cond_wait(&all->change, &all->lock);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* One more thread, while there are processors. Where none can be had, the one that waits for a
 * module compiles it. */
static void start_compiler(Modules *all) {
    if (all->nthread < all->most_threads &&
        pthread_create(&all->thread[all->nthread], NULL, compiler, all) == 0)
        all->nthread++;
}

/* ---- the list ---- */

static Modules *open_all(Cuda *c) {
    Modules *all = calloc(1, sizeof *all);
    CompileOptions options;
    cpu_set_t mine;
    if (!all) return NULL;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->change, NULL);
    int cores = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
    all->most_threads = cores < MOST_COMPILERS ? cores : MOST_COMPILERS;
    all->cache = c->cache;
    all->version = api_version(c->toolkit);
    for (const SourceFile *f = embedded_device_code; f->name; f++) {
        cache_mix_text(&all->common, f->name);
        cache_mix_text(&all->common, f->text);
    }
    compile_options(&options, 0, 0);
    for (int i = 1; i < options.count; i++) cache_mix_text(&all->common, options.list[i]);
    /* The compiler's version, without opening the compiler: NVRTC comes with the runtime. */
    cache_mix(&all->common, &c->toolkit, sizeof c->toolkit);
    return all;
}

static CacheKey key_of(const Modules *all, const CudaGpu *gpu, const char *source) {
    CompileOptions options;
    CacheKey key = all->common;
    compile_options(&options, gpu->major, gpu->minor);
    cache_mix_text(&key, options.arch);
    cache_mix_text(&key, source);
    return key;
}

static Module *find(const Modules *all, CacheKey key) {
    for (size_t i = 0; i < all->n; i++)
        if (memcmp(&all->list[i]->key, &key, sizeof key) == 0) return all->list[i];
    return NULL;
}

static void module_free(Cuda *c, Module *m) {
    if (m->library) c->rt.cudaLibraryUnload(m->library);
    free(m->source);
    free(m->cubin);
    free(m);
}

static int add(Modules *all, Module *m) {
    pthread_mutex_lock(&all->lock);
    if (all->n == all->most) {
        size_t most = all->most ? 2 * all->most : 64;
        Module **list = realloc(all->list, most * sizeof(Module *));
        if (list) {
            all->list = list;
            all->most = most;
        }
    }
    int room = all->n < all->most;
    if (room) all->list[all->n++] = m;
    if (room && m->state == WAITS) {
        start_compiler(all);
        pthread_cond_broadcast(&all->change);
    }
    pthread_mutex_unlock(&all->lock);
    return room;
}

Module *module_get(Cuda *c, const CudaGpu *gpu, const char *source) {
    if (!c->modules && !(c->modules = open_all(c))) return NULL;
    CacheKey key = key_of(c->modules, gpu, source);
    Module *m = find(c->modules, key);
    if (m) return m;
    m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->key = key;
    m->major = gpu->major;
    m->minor = gpu->minor;
    m->source = strdup(source);
    m->cubin = cache_read(c->cache, KIND, key, &m->size);
    m->from_disk = m->cubin != NULL;
    m->state = m->cubin ? DONE : WAITS;
    if (m->source && add(c->modules, m)) return m;
    module_free(c, m);
    return NULL;
}

/* ---- loading ---- */

static void wait_for(Modules *all, Module *m) {
    pthread_mutex_lock(&all->lock);
    if (m->state == WAITS) work_on(all, m);
    while (m->state != DONE) pthread_cond_wait(&all->change, &all->lock);
    pthread_mutex_unlock(&all->lock);
}

static cudaError_t load(Cuda *c, Module *m) {
    return c->rt.cudaLibraryLoadData(&m->library, m->cubin, NULL, NULL, 0, NULL, NULL, 0);
}

static int ready(Cuda *c, Module *m) {
    if (m->library) return 1;
    wait_for(c->modules, m);
    cudaError_t code = m->cubin ? load(c, m) : cudaSuccess;
    if (code != cudaSuccess && m->from_disk) { /* a file that is whole, and of no use here */
        c->rt.cudaGetLastError();
        free(m->cubin);
        m->cubin = NULL;
        m->from_disk = 0;
        compile(c->modules, m);
        code = m->cubin ? load(c, m) : cudaSuccess;
    }
    if (!m->cubin) return gpu_fail(c, "%s", m->error);
    if (!gpu_ok(c, code, "cudaLibraryLoadData")) return 0;
    free(m->cubin); /* CUDA has a copy */
    free(m->source);
    m->cubin = m->source = NULL;
    return 1;
}

int module_kernel(Cuda *c, Module *m, const char *entry, cudaKernel_t *kernel) {
    return ready(c, m) && gpu_ok(c, c->rt.cudaLibraryGetKernel(kernel, m->library, entry), entry);
}

void module_close_all(Cuda *c) {
    Modules *all = c->modules;
    if (!all) return;
    pthread_mutex_lock(&all->lock);
    all->stop = 1;
    pthread_cond_broadcast(&all->change);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < all->nthread; i++) pthread_join(all->thread[i], NULL);
    for (size_t i = 0; i < all->n; i++) module_free(c, all->list[i]);
    pthread_cond_destroy(&all->change);
    pthread_mutex_destroy(&all->lock);
    free(all->list);
    free(all);
    c->modules = NULL;
}
