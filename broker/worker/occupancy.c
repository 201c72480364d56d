/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Occupancy questions that take a launch configuration. Executor thread.
 */
#include "broker/worker/launch.h"
#include "gen/worker_bodies.h"

/* What both questions have in common; attributes and config are the caller's. */
#define CONFIG_READ(w, m, config, attributes, function)                                                                \
	do {                                                                                                           \
		void *stream_;                                                                                         \
		CUresult r_;                                                                                           \
                                                                                                                       \
		if (!object_get(w, OBJECT_FUNCTION, (m)->func, false, &(function)) ||                                   \
		    !object_get(w, OBJECT_STREAM, (m)->stream, true, &stream_))                                        \
			return CUDA_ERROR_INVALID_HANDLE;                                                              \
		(config) = (CUlaunchConfig){                                                                           \
			.gridDimX = (m)->grid_x, .gridDimY = (m)->grid_y, .gridDimZ = (m)->grid_z,                     \
			.blockDimX = (m)->block_x, .blockDimY = (m)->block_y, .blockDimZ = (m)->block_z,               \
			.sharedMemBytes = (m)->shared_size, .hStream = stream_, .attrs = attributes,                   \
		};                                                                                                     \
		r_ = launch_attributes(w, (m)->attrs, (m)->attrs_size, attributes, &(config).numAttrs);                \
		if (r_ != CUDA_SUCCESS)                                                                                \
			return r_;                                                                                     \
	} while (0)

CUresult worker_do_cuOccupancyMaxPotentialClusterSize(struct worker *w, struct cmd *cmd,
						      const struct msg_cuOccupancyMaxPotentialClusterSize *m,
						      struct ans_cuOccupancyMaxPotentialClusterSize *a)
{
	CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES];
	CUlaunchConfig config;
	void *function;
	int size = 0;
	CUresult r;

	CONFIG_READ(w, m, config, attributes, function);
	r = w->drv.cuOccupancyMaxPotentialClusterSize(&size, function, &config);
	a->clusterSize = size;
	return r;
}

CUresult worker_do_cuOccupancyMaxActiveClusters(struct worker *w, struct cmd *cmd,
						const struct msg_cuOccupancyMaxActiveClusters *m,
						struct ans_cuOccupancyMaxActiveClusters *a)
{
	CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES];
	CUlaunchConfig config;
	void *function;
	int count = 0;
	CUresult r;

	CONFIG_READ(w, m, config, attributes, function);
	r = w->drv.cuOccupancyMaxActiveClusters(&count, function, &config);
	a->numClusters = count;
	return r;
}
