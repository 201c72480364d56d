// SPDX-License-Identifier: Apache-2.0
/*
 * A graph as text for Graphviz, to a file that the program names. Application threads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/program.h"

#define DOT_FLAGS 0xffffu

static const char *const type_names[] = {
	[CU_GRAPH_NODE_TYPE_KERNEL] = "KERNEL", [CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
	[CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET", [CU_GRAPH_NODE_TYPE_HOST] = "HOST",
	[CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH", [CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
	[CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "WAIT_EVENT", [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
	[CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC", [CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE",
	[CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = "BATCH_MEM_OP", [CU_GRAPH_NODE_TYPE_CONDITIONAL] = "CONDITIONAL",
};

static void node_print(FILE *file, const struct graph_node *node, unsigned int number, unsigned int flags)
{
	const struct graph_work *w = &node->work;
	bool all = flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;

	fprintf(file, "\t\"graph_%u_node_%" PRIu32 "\" [shape=record label=\"{%" PRIu32 " | %s", number, node->index,
		node->index, type_names[w->type]);
	if (all || flags & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)
		fprintf(file, " | node handle 0x%" PRIx64, node->handle);
	if (w->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		/* Names are of the program's kernels: mangled ones hold nothing that a label would mind. */
		fprintf(file, " | %s", w->kernel.function->info->name);
		if (all || flags & CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)
			fprintf(file, " | grid %u,%u,%u block %u,%u,%u shared %u", w->kernel.grid[0], w->kernel.grid[1],
				w->kernel.grid[2], w->kernel.block[0], w->kernel.block[1], w->kernel.block[2],
				w->kernel.shared_size);
	} else if (w->type == CU_GRAPH_NODE_TYPE_MEMCPY &&
		   (all || flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) {
		fprintf(file, " | %zu x %zu x %zu bytes", w->copy.WidthInBytes, w->copy.Height, w->copy.Depth);
	} else if (w->type == CU_GRAPH_NODE_TYPE_MEMSET &&
		   (all || flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) {
		fprintf(file, " | 0x%llx: %zu x %zu of %u bytes, value 0x%x", (unsigned long long)w->fill.dst, w->fill.width,
			w->fill.height, w->fill.elementSize, w->fill.value);
	} else if (w->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		static const char *const kinds[] = { "IF", "WHILE", "SWITCH" };

		fprintf(file, " | %s", kinds[w->branch.kind]);
		if (all || flags & CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS)
			fprintf(file, " | handle 0x%" PRIx64 " of %" PRIu32, w->branch.condition, w->branch.count);
	}
	fprintf(file, "}\"];\n");
	for (uint32_t i = 0; i < node->need_count; i++)
		fprintf(file, "\t\"graph_%u_node_%" PRIu32 "\" -> \"graph_%u_node_%" PRIu32 "\";\n", number,
			node->needs[i].node->index, number, node->index);
}

/* A child or a body is a cluster of its own, under the number of the graph that is printed before it and counted on. */
static void graph_print(FILE *file, const struct graph *graph, unsigned int *numbers, unsigned int flags)
{
	unsigned int number = (*numbers)++;

	fprintf(file, "subgraph cluster_%u {\n\tlabel=\"graph_%u\";\n", number, number);
	for (uint32_t i = 0; i < graph->node_count; i++)
		node_print(file, graph->nodes[i], number, flags);
	for (uint32_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
			graph_print(file, graph->nodes[i]->work.child, numbers, flags);
	for (uint32_t i = 0; i < graph->node_count; i++)
		for (uint32_t j = 0; graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL && j < graph->nodes[i]->work.branch.count; j++)
			graph_print(file, graph->nodes[i]->work.branch.bodies[j], numbers, flags);
	fprintf(file, "}\n");
}

CUresult do_cuGraphDebugDotPrint(struct call *call, CUgraph hGraph, const char *path, unsigned int flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct graph *graph;
	char *text = NULL;
	size_t size = 0;
	FILE *file;

	if (!path || (flags & ~DOT_FLAGS))
		return result;
	/* Written to memory under the lock, and to the disk without it. */
	file = open_memstream(&text, &size);
	if (!file)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph_lock();
	graph = graph_find(hGraph);
	if (graph) {
		unsigned int numbers = 1;

		fprintf(file, "digraph dot {\n");
		graph_print(file, graph, &numbers, flags);
		fprintf(file, "}\n");
		result = CUDA_SUCCESS;
	}
	graph_unlock();
	if (fclose(file) && !result)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result) {
		file = fopen(path, "we");
		if (!file || fwrite(text, 1, size, file) != size)
			result = CUDA_ERROR_OPERATING_SYSTEM;
		if (file && fclose(file))
			result = CUDA_ERROR_OPERATING_SYSTEM;
	}
	free(text);
	return result;
}
