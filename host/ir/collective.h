/* collective.h - what data may do between devices. */
#ifndef MESHLUA_COLLECTIVE_H
#define MESHLUA_COLLECTIVE_H

typedef enum CollectiveKind {
    COLL_NONE,
    COLL_ALL_GATHER,
    COLL_ALL_REDUCE,
    COLL_REDUCE_SCATTER,
    COLL_ALL_TO_ALL,
    COLL_PERMUTE
} CollectiveKind;

#endif
