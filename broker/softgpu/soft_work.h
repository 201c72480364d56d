/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one node of a graph does, apart from where it stands.
 */
#ifndef SOFT_WORK_H
#define SOFT_WORK_H

#include "broker/softgpu/soft_copy.h"
#include "broker/softgpu/soft_event.h"
#include "broker/softgpu/soft_launch.h"
#include "broker/softgpu/soft_memop.h"

struct soft_condition;
struct soft_graph;
struct soft_program;

struct soft_work {
	int type; /* CU_GRAPH_NODE_TYPE_* */
	union {
		struct {
			struct soft_launch *launch; /* owned */
			CUfunction handle;	    /* as the program named it */
			void **pointers;	    /* owned: to the parameters, for whoever reads them back */
		} kernel;
		struct {
			CUDA_MEMCPY3D box;
			struct soft_transfer transfer;
		} copy;
		struct {
			CUDA_MEMSET_NODE_PARAMS params;
			struct soft_fill fill;
		} fill;
		CUDA_HOST_NODE_PARAMS host;
		struct soft_event *event; /* counted */
		struct {
			CUcontext context;
			unsigned int count, flags;
			CUstreamBatchMemOpParams *ops; /* owned */
		} memop;
		struct soft_graph *child; /* counted; a copy of the node's own */
		struct {
			struct soft_condition *condition; /* held */
			int kind;			  /* CU_GRAPH_COND_TYPE_* */
			unsigned int count;		  /* of bodies */
			struct soft_graph **bodies;	  /* a node's: owned list of counted ones */
			CUgraph *handles;		  /* a node's: owned, handed out */
			struct soft_program **programs;	  /* a step's: owned list of counted ones */
		} branch;
	};
};

/* Each checks as the driver does when the node is made. @work is the caller's to free after success. */
CUresult soft_work_kernel(struct soft_work *work, struct soft_context *context, const CUDA_KERNEL_NODE_PARAMS *params);
/* Of one that was checked. Takes @launch, also on failure. */
CUresult soft_work_launch(struct soft_work *work, CUfunction handle, struct soft_launch *launch);
CUresult soft_work_copy(struct soft_work *work, const CUDA_MEMCPY3D *box);
CUresult soft_work_fill(struct soft_work *work, const CUDA_MEMSET_NODE_PARAMS *params);
CUresult soft_work_host(struct soft_work *work, const CUDA_HOST_NODE_PARAMS *params);
CUresult soft_work_event(struct soft_work *work, int type, CUevent event);
CUresult soft_work_memop(struct soft_work *work, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params);

/* With bodies that are empty; checked against @graph, which the node will be of. */
CUresult soft_work_branch(struct soft_work *work, CUgraph graph, CUDA_CONDITIONAL_NODE_PARAMS *params);

/* A deep copy; a child graph is shared, as are the programs of bodies, and the bodies themselves are left out. */
CUresult soft_work_clone(const struct soft_work *work, struct soft_work *clone_out);
void soft_work_free(struct soft_work *work);

#endif
