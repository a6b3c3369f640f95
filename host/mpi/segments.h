/* segments.h - where MPI keeps the memory that processes of a host share: a folder of each
 * process's own, by whose name the next one sees whether its process still lives. What is left of
 * one that was killed would fill that memory until the host starts again. */
#ifndef MESHLUA_SEGMENTS_H
#define MESHLUA_SEGMENTS_H

/* Before MPI starts: removes what dead processes of this user have left, and makes the folder. Not
 * 0: MPI will use it. */
int segments_begin(void);
/* MPI has read where it is: programs that this one starts have a place of their own. */
void segments_begun(void);
/* When it has ended. */
void segments_end(void);

#endif
