/* ranks.h - which process of how many this is: from the flags, or from the environment that a
 * launcher leaves. Nothing is guessed: values that are there in part, or that contradict each
 * other, are errors. */
#ifndef MESHLUA_RUN_JOB_RANKS_H
#define MESHLUA_RUN_JOB_RANKS_H

#include "base/ctx.h"
#include "base/str.h"

typedef enum RankField {
    RANK_WORLD_SIZE, /* these three make a set: all or none */
    RANK_RANK,
    RANK_LOCAL_RANK,
    RANK_MASTER_ADDR, /* where the processes meet; an MPI world has its own way */
    RANK_MASTER_PORT,
    RANK_FIELDS
} RankField;

/* The values of the flags --world-size, --rank, ...: texts by RankField, NULL where not given. */
typedef struct RankFlags {
    const char *value[RANK_FIELDS];
    const char *log_ranks; /* --log-ranks, or NULL */
} RankFlags;

enum { HOST_TEXT = 256, RANK_NOTE = 256, RANK_JOB = 64 };

typedef struct Ranks {
    int32_t world, rank, local; /* processes; this one, from 0; its number on its host, from 0 */
    const char *source;         /* "OpenMPI", ...; NULL: nothing says that there is more than one */
    const char *name;           /* what said the rank: "OMPI_COMM_WORLD_RANK" */
    bool mpi;                   /* a launcher of MPI started it */
    bool one_host;              /* the launcher put all on this one */
    char job[RANK_JOB];         /* its name for the job; "": not known */
    char master[HOST_TEXT];     /* "": not known */
    int32_t port;               /* 0: not known */
    bool silent;                /* its output is not wanted: another rank's is */
    bool tagged;                /* output of several ranks is wanted */
    char note[RANK_NOTE];       /* what was there in part and not taken; "": nothing */
} Ranks;

/* Takes the first whole set of: the flags; MESHLUA_WORLD_SIZE, ...; WORLD_SIZE, RANK, LOCAL_RANK;
 * OpenMPI's; Slurm's. None: one process. A part of a set, a value out of range or two sets that say
 * different things are errors: E_VALUE where a flag is at fault, else E_RANKS. Slurm sets some of
 * its variables around processes that it did not start, so a part of those is noted only. */
Err ranks_find(Ctx *cx, const RankFlags *flags, Ranks *out) MUST_CHECK;
/* "rank 3 of 16, local rank 3, by Slurm (SLURM_PROCID)"; "one process". */
void ranks_print(const Ranks *r, Str *s);
/* Whose output is wanted, by --log-ranks: "all", or ranks as in "0,3"; NULL: rank 0's. */
Err ranks_choose_speakers(Ctx *cx, const char *list, Ranks *out) MUST_CHECK;
/* The file that this rank writes instead of `path`, which is not its alone: "run.r3.json" for
 * "run.json" where several ranks speak, "/dev/null" where this one does not. */
void ranks_print_file(const Ranks *r, const char *path, Str *s);

#endif
