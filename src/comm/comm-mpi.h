/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_COMM_COMM_MPI_H
#define TRL_COMM_COMM_MPI_H
/* The MPI communicator: MPI starts the ranks and carries what crosses nodes; within a node shared
 * memory does. */
#include <stdbool.h>

#include "comm/comm.h"
#include "comm/node-shm.h"
#include "job/job.h"

/* Starts MPI. `job` is what the environment says; a different MPI world is refused. */
int trl__mpi_open(struct trl_comm *c, const struct trl_job *job, struct trl_err *err);
/* The table of this node's ranks; NULL for a communicator without. */
struct trl__node *trl__mpi_node(struct trl_comm *c);
/* Ends the ranks of other nodes. Returns, or does not. */
void trl__mpi_abort_job(int exit_code);

#endif
