/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs. The client has flattened child graphs, staged host memory in device memory, and cut out what the host does
 * between two parts, so that what arrives here are nodes that a driver's graph can hold. Executor thread; see graph.h.
 */
#include "broker/worker/graph.h"

#include <stdlib.h>
#include <string.h>

#include "broker/worker/box.h"
#include "broker/worker/completion.h"
#include "broker/worker/context.h"
#include "broker/worker/launch.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "gen/worker_bodies.h"

#define NODES_MAX    (1u << 20) /* of a graph; frameworks make some ten thousand */
#define NEEDS_MAX    1024u	/* of one message; more come with gleamGraphEdges */
#define EDGES_MAX    2048u
#define CONDITIONS_MAX 65536u /* of a graph */
#define WORDS_MAX    256u /* the driver's own limit of a batch */
/*
 * Nodes of a graph that count as one real command: the driver takes a whole graph in a few entries of its channel, not in
 * one a node. Too few would let the executor block in a launch, too many would keep graphs from following each other.
 */
#define NODES_A_COMMAND 32u

struct condition {
	uint64_t handle; /* the client's */
	CUgraphConditionalHandle driver;
};

/*
 * A body of a conditional node is described and changed as a graph of its own; the rest is its root's, which owns it. Its handle ends
 * with the root's.
 */
struct graph {
	struct graph *root;  /* itself, but for bodies */
	uint64_t handle;
	CUgraph graph;	     /* kept: its nodes are how parts of the made one are named; a body's is the driver's */
	CUgraphNode *nodes;  /* by place */
	uint32_t count;
	uint32_t room;
	CUgraphExec exec; /* NULL until it is made */
	bool launched;
	uint64_t flags;	  /* to be made with */
	CUresult failed;  /* the first failure of a node */
	int last_type;	  /* of the newest node */
	struct event *gate;
	/* a root's */
	uint32_t total; /* nodes, those of bodies too */
	struct graph **bodies;
	uint32_t body_count;
	struct condition *conditions;
	uint32_t condition_count;
	struct graph *source; /* what it was updated from, if that has conditions: kernels set those now */
};

/* ---- birth and end ---- */

static struct graph *graph_of(struct worker *w, uint64_t handle)
{
	struct object *o = object_find(w->tables, OBJECT_GRAPHEXEC, handle);

	return o ? o->own : NULL;
}

struct event *graph_gate(struct worker *w, uint64_t handle)
{
	struct graph *g = graph_of(w, handle);

	return g ? g->root->gate : NULL;
}

uint64_t graph_root(struct worker *w, uint64_t handle)
{
	struct graph *g = graph_of(w, handle);

	return g ? g->root->handle : handle;
}

static void graph_bodies_hide(struct worker *w, struct graph *g)
{
	for (uint32_t i = 0; i < g->body_count; i++) {
		if (g->bodies[i]->handle)
			object_erase(w->tables, g->bodies[i]->handle);
		g->bodies[i]->handle = 0;
	}
}

void graph_own_free(struct worker *w, void *own, bool well)
{
	struct graph *g = own;

	if (!g || g->root != g)
		return;
	graph_own_free(w, g->source, well);
	graph_bodies_hide(w, g);
	for (uint32_t i = 0; i < g->body_count; i++) {
		free(g->bodies[i]->nodes);
		free(g->bodies[i]);
	}
	free(g->bodies);
	free(g->conditions);
	if (g->exec && well)
		w->drv.cuGraphExecDestroy(g->exec);
	w->drv.cuGraphDestroy(g->graph);
	event_put(w, g->gate);
	free(g->nodes);
	free(g);
}

CUresult worker_do_gleamGraphBegin(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphBegin *m)
{
	struct graph *g = calloc(1, sizeof(*g));
	struct object *o;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (!g)
		return r;
	g->gate = event_new(NULL);
	if (!g->gate)
		goto free_graph;
	r = w->drv.cuGraphCreate(&g->graph, 0);
	if (r != CUDA_SUCCESS)
		goto free_gate;
	o = object_insert(w->tables, OBJECT_GRAPHEXEC, m->graph);
	if (!o) {
		r = CMD_BROKEN;
		goto destroy;
	}
	o->ctx = cmd->hdr->ctx;
	o->own = g;
	g->root = g;
	g->handle = m->graph;
	return CUDA_SUCCESS;

destroy:
	w->drv.cuGraphDestroy(g->graph);
free_gate:
	event_put(w, g->gate);
free_graph:
	free(g);
	return r;
}

static void graph_end(struct worker *w, uint64_t handle)
{
	struct object *o = object_find(w->tables, OBJECT_GRAPHEXEC, handle);
	struct graph *g = o ? o->own : NULL;

	if (!o || (g && g->root != g))
		return; /* a body ends with its root */
	graph_own_free(w, o->own, true);
	object_erase(w->tables, handle);
}

/*
 * A driver may wait for the context's work before it makes a graph, launches it the first time, changes or frees it, and that work may
 * wait for a host function whose end only this thread hears of: none is outstanding then. The context to wait for, or NULL.
 */
static struct context *must_wait(struct worker *w, uint64_t handle)
{
	struct object *o = object_find(w->tables, OBJECT_GRAPHEXEC, handle);
	struct context *c = o && o->ctx < SESSION_CONTEXTS ? &w->contexts[o->ctx] : NULL;

	return c && host_calls_pending(w, c) ? c : NULL;
}

static struct join *later(const struct cmd *cmd, const struct context *c, void (*done)(struct worker *w, struct join *join))
{
	struct join *join = calloc(1, sizeof(*join));

	if (!join)
		return NULL;
	join->done = done;
	join->hdr = *cmd->hdr;
	join->b = c->index;
	return join;
}

static void end_now(struct worker *w, struct join *join)
{
	struct context *c = &w->contexts[join->b];

	if (c->open && host_calls_wait(w, c, join))
		return;
	graph_own_free(w, join->object, c->open && join->result == CUDA_SUCCESS && context_use(w, c) == CUDA_SUCCESS);
	free(join);
}

CUresult worker_do_gleamGraphEnd(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphEnd *m)
{
	struct graph *g = graph_of(w, m->graph);
	struct context *c = must_wait(w, m->graph);

	if (c && g && g->root == g) {
		struct join *join = later(cmd, c, end_now);

		if (!join)
			return CUDA_ERROR_OUT_OF_MEMORY;
		/* Its handle may be used again at once. */
		join->object = g;
		graph_bodies_hide(w, g);
		object_erase(w->tables, m->graph);
		streams_join(w, c, join);
		return CUDA_SUCCESS;
	}
	/* One that is still running ends with its last launch: the driver sees to that. */
	graph_end(w, m->graph);
	return CUDA_SUCCESS;
}

/* ---- nodes ---- */

/* What every node message begins with. */
struct place {
	struct graph *graph;
	CUcontext context;
	CUgraphNode needs[NEEDS_MAX];
	uint32_t need_count;
};

/* Failures of nodes are kept for gleamGraphMake: until then the client hears nothing. */
static CUresult place_find(struct worker *w, uint64_t handle, uint32_t index, const uint32_t *needs, uint32_t need_count,
			   struct place *place)
{
	struct graph *g = graph_of(w, handle);

	if (!g)
		return CUDA_ERROR_INVALID_HANDLE; /* its beginning failed */
	if (g->root->exec || need_count > NEEDS_MAX)
		return CMD_BROKEN;
	place->graph = g;
	place->context = NULL;
	place->need_count = need_count;
	for (uint32_t i = 0; i < need_count; i++) {
		if (needs[i] >= g->count)
			return CMD_BROKEN;
		place->needs[i] = g->nodes[needs[i]];
		if (!place->needs[i] && !g->root->failed)
			g->root->failed = CUDA_ERROR_INVALID_VALUE;
	}
	if (g->root->total == NODES_MAX) {
		g->root->failed = CUDA_ERROR_OUT_OF_MEMORY;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (g->count == g->room) {
		uint32_t room = g->room ? g->room * 2 : 64;
		CUgraphNode *nodes = realloc(g->nodes, room * sizeof(*nodes));

		if (!nodes) {
			g->root->failed = CUDA_ERROR_OUT_OF_MEMORY;
			return g->root->failed;
		}
		g->nodes = nodes;
		g->room = room;
	}
	if (index < SESSION_CONTEXTS && w->contexts[index].open)
		place->context = w->contexts[index].driver;
	else if (index != CTX_NONE && !g->root->failed)
		g->root->failed = CUDA_ERROR_INVALID_CONTEXT;
	/* The place exists even if the node can't be made, so that later ones keep their numbers. */
	g->nodes[g->count++] = NULL;
	g->root->total++;
	return CUDA_SUCCESS;
}

static CUresult place_filled(struct place *place, CUgraphNode node, int type, CUresult r)
{
	struct graph *g = place->graph;

	if (r == CUDA_SUCCESS)
		g->nodes[g->count - 1] = node;
	else if (!g->root->failed)
		g->root->failed = r;
	g->last_type = type;
	return CUDA_SUCCESS;
}

/* ---- conditions ---- */

static struct condition *condition_of(struct graph *root, uint64_t handle)
{
	for (uint32_t i = 0; i < root->condition_count; i++)
		if (root->conditions[i].handle == handle)
			return &root->conditions[i];
	return NULL;
}

/* The newest graph's, for what is to be put into a made one. */
struct newest {
	uint64_t handle;
	struct condition *found;
};

static void newest_look(void *arg, uint64_t handle, struct object *o)
{
	struct newest *n = arg;
	struct graph *g = o->own;

	if (g && g->root == g && g->exec && !n->found)
		n->found = condition_of(g, n->handle);
}

/* What kernels are given as a condition's handle is the driver's. Handles lie among the parameters as any number of 8 bytes does. */
static void params_conditions(struct worker *w, struct graph *g, uint8_t *params, size_t size)
{
	for (size_t at = 0; at + 8 <= size; at += 8) {
		struct condition *c;
		uint64_t word;

		memcpy(&word, params + at, sizeof(word));
		if (handle_type(word) != OBJECT_CONDITION)
			continue;
		c = condition_of(g->root, word);
		if (!c) {
			struct newest n = { .handle = word };

			object_each(w->tables, OBJECT_GRAPHEXEC, newest_look, &n);
			c = n.found;
		}
		if (c)
			memcpy(params + at, &c->driver, sizeof(c->driver));
	}
}

CUresult worker_do_gleamGraphCondition(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphCondition *m)
{
	struct graph *g = graph_of(w, m->graph);
	CUcontext context = NULL;
	struct condition *all;
	CUresult r;

	if (!g)
		return CUDA_ERROR_INVALID_HANDLE;
	if (g->root->exec || handle_type(m->handle) != OBJECT_CONDITION || condition_of(g->root, m->handle))
		return CMD_BROKEN;
	if (m->index < SESSION_CONTEXTS && w->contexts[m->index].open)
		context = w->contexts[m->index].driver;
	else if (!g->root->failed)
		g->root->failed = CUDA_ERROR_INVALID_CONTEXT;
	if (g->root->failed)
		return CUDA_SUCCESS;
	all = g->root->condition_count < CONDITIONS_MAX ?
		      realloc(g->root->conditions, (g->root->condition_count + 1u) * sizeof(*all)) : NULL;
	if (!all) {
		g->root->failed = CUDA_ERROR_OUT_OF_MEMORY;
		return CUDA_SUCCESS;
	}
	g->root->conditions = all;
	all[g->root->condition_count] = (struct condition){ .handle = m->handle };
	r = w->drv.cuGraphConditionalHandleCreate(&all[g->root->condition_count].driver, g->graph, context, m->value, m->flags);
	if (r == CUDA_SUCCESS)
		g->root->condition_count++;
	else
		g->root->failed = r;
	return CUDA_SUCCESS;
}

/* A body under its handle, also where the node can't be made: descriptions that come for it are heard. */
static CUresult body_add(struct worker *w, struct cmd *cmd, struct graph *root, uint64_t handle, CUgraph driver)
{
	struct graph **bodies = realloc(root->bodies, (root->body_count + 1u) * sizeof(struct graph *));
	struct graph *body;
	struct object *o;

	if (!bodies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	root->bodies = bodies;
	body = calloc(1, sizeof(*body));
	if (!body)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o = object_insert(w->tables, OBJECT_GRAPHEXEC, handle);
	if (!o) {
		free(body);
		return CMD_BROKEN;
	}
	*body = (struct graph){ .root = root, .handle = handle, .graph = driver };
	o->ctx = cmd->hdr->ctx;
	o->own = body;
	bodies[root->body_count++] = body;
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamGraphBranch(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphBranch *m)
{
	CUgraphNodeParams p = {
		.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
		.conditional = { .type = (CUgraphConditionalNodeType)m->kind, .size = m->bodies_count },
	};
	struct condition *condition;
	struct place place;
	CUgraphNode node = NULL;
	CUresult r;

	if (!m->bodies_count)
		return CMD_BROKEN;
	r = place_find(w, m->graph, m->index, m->needs, m->needs_count, &place);
	if (r != CUDA_SUCCESS)
		return r;
	r = CUDA_ERROR_INVALID_VALUE;
	condition = condition_of(place.graph->root, m->handle);
	if (!place.graph->root->failed && condition) {
		p.conditional.handle = condition->driver;
		p.conditional.ctx = place.context;
		r = w->drv.cuGraphAddNode_v2(&node, place.graph->graph, place.needs, NULL, place.need_count, &p);
	}
	for (uint32_t i = 0; i < m->bodies_count; i++) {
		CUresult added = body_add(w, cmd, place.graph->root, m->bodies[i],
					  r == CUDA_SUCCESS ? p.conditional.phGraph_out[i] : NULL);

		if (added == CMD_BROKEN)
			return added;
		if (added != CUDA_SUCCESS && r == CUDA_SUCCESS)
			r = added;
	}
	return place_filled(&place, node, CU_GRAPH_NODE_TYPE_CONDITIONAL, r);
}

/* ---- nodes of the other kinds ---- */

CUresult worker_do_gleamGraphKernel(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphKernel *m)
{
	CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES];
	unsigned int count = 0;
	size_t size = m->params_size;
	void *extra[] = {
		CU_LAUNCH_PARAM_BUFFER_POINTER, w->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END,
	};
	CUDA_KERNEL_NODE_PARAMS p = {
		.gridDimX = m->grid_x, .gridDimY = m->grid_y, .gridDimZ = m->grid_z,
		.blockDimX = m->block_x, .blockDimY = m->block_y, .blockDimZ = m->block_z,
		.sharedMemBytes = m->shared_size, .extra = size ? extra : NULL,
	};
	struct place place;
	CUgraphNode node = NULL;
	void *function;
	CUresult r;

	if (size > LAUNCH_PARAMS_MAX)
		return CMD_BROKEN;
	r = place_find(w, m->graph, m->index, m->needs, m->needs_count, &place);
	if (r != CUDA_SUCCESS)
		return r;
	if (place.graph->root->failed)
		return CUDA_SUCCESS;
	if (!object_get(w, OBJECT_FUNCTION, m->function, false, &function))
		return place_filled(&place, NULL, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_ERROR_INVALID_HANDLE);
	if (handle_type(m->function) == OBJECT_KERNEL) {
		p.kern = function;
		p.ctx = place.context;
	} else {
		p.func = function;
	}
	if (size)
		memcpy(w->params, m->params, size);
	params_conditions(w, place.graph, w->params, size);
	r = launch_attributes(w, m->attrs, m->attrs_size, attributes, &count);
	if (r == CMD_BROKEN)
		return r;
	if (r == CUDA_SUCCESS)
		r = w->drv.cuGraphAddKernelNode_v2(&node, place.graph->graph, place.needs, place.need_count, &p);
	for (unsigned int i = 0; i < count && r == CUDA_SUCCESS; i++)
		if (attributes[i].id != CU_LAUNCH_ATTRIBUTE_IGNORE)
			r = w->drv.cuGraphKernelNodeSetAttribute(node, attributes[i].id, &attributes[i].value);
	return place_filled(&place, node, CU_GRAPH_NODE_TYPE_KERNEL, r);
}

CUresult worker_do_gleamGraphCopy(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphCopy *m)
{
	CUDA_MEMCPY3D p = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = m->src, .srcPitch = m->src_pitch,
		.srcHeight = m->src_height, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = m->dst,
		.dstPitch = m->dst_pitch, .dstHeight = m->dst_height,
		.WidthInBytes = m->width, .Height = m->rows, .Depth = m->depth,
	};
	struct place place;
	CUgraphNode node = NULL;
	CUresult r = place_find(w, m->graph, m->index, m->needs, m->needs_count, &place);

	if (r != CUDA_SUCCESS)
		return r;
	if (place.graph->root->failed)
		return CUDA_SUCCESS;
	r = w->drv.cuGraphAddMemcpyNode(&node, place.graph->graph, place.needs, place.need_count, &p, place.context);
	return place_filled(&place, node, CU_GRAPH_NODE_TYPE_MEMCPY, r);
}

CUresult worker_do_gleamGraphBox(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphBox *m)
{
	CUDA_MEMCPY3D p = BOX_OF(m);
	struct place place;
	CUgraphNode node = NULL;
	CUresult r = place_find(w, m->graph, m->index, m->needs, m->needs_count, &place);

	if (r != CUDA_SUCCESS)
		return r;
	if (place.graph->root->failed)
		return CUDA_SUCCESS;
	if (!box_arrays(w, m->src_array, m->dst_array, &p))
		return place_filled(&place, NULL, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_ERROR_INVALID_HANDLE);
	r = w->drv.cuGraphAddMemcpyNode(&node, place.graph->graph, place.needs, place.need_count, &p, place.context);
	return place_filled(&place, node, CU_GRAPH_NODE_TYPE_MEMCPY, r);
}

CUresult worker_do_gleamGraphFill(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphFill *m)
{
	CUDA_MEMSET_NODE_PARAMS p = {
		.dst = m->dst, .pitch = m->pitch, .value = m->value, .elementSize = m->element, .width = m->width,
		.height = m->rows,
	};
	struct place place;
	CUgraphNode node = NULL;
	CUresult r = place_find(w, m->graph, m->index, m->needs, m->needs_count, &place);

	if (r != CUDA_SUCCESS)
		return r;
	if (place.graph->root->failed)
		return CUDA_SUCCESS;
	r = w->drv.cuGraphAddMemsetNode(&node, place.graph->graph, place.needs, place.need_count, &p, place.context);
	return place_filled(&place, node, CU_GRAPH_NODE_TYPE_MEMSET, r);
}

CUresult worker_do_gleamGraphEmpty(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphEmpty *m)
{
	struct place place;
	CUgraphNode node = NULL;
	CUresult r = place_find(w, m->graph, CTX_NONE, m->needs, m->needs_count, &place);

	if (r != CUDA_SUCCESS)
		return r;
	if (place.graph->root->failed)
		return CUDA_SUCCESS;
	r = w->drv.cuGraphAddEmptyNode(&node, place.graph->graph, place.needs, place.need_count);
	return place_filled(&place, node, CU_GRAPH_NODE_TYPE_EMPTY, r);
}

CUresult worker_do_gleamGraphWords(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphWords *m)
{
	CUstreamBatchMemOpParams ops[WORDS_MAX];
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = {
		.count = m->ops_size / (uint32_t)sizeof(ops[0]), .paramArray = ops, .flags = m->flags,
	};
	struct place place;
	CUgraphNode node = NULL;
	CUresult r;

	if (m->ops_size % sizeof(ops[0]) || p.count > WORDS_MAX)
		return CMD_BROKEN;
	r = place_find(w, m->graph, m->index, m->needs, m->needs_count, &place);
	if (r != CUDA_SUCCESS)
		return r;
	if (place.graph->root->failed)
		return CUDA_SUCCESS;
	if (m->ops_size)
		memcpy(ops, m->ops, m->ops_size);
	for (uint32_t i = 0; i < p.count; i++)
		/* What is newer than this code could hold pointers of anything. */
		if ((unsigned int)ops[i].operation > CU_STREAM_MEM_OP_BARRIER)
			return place_filled(&place, NULL, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CUDA_ERROR_INVALID_VALUE);
	p.ctx = place.context;
	r = w->drv.cuGraphAddBatchMemOpNode(&node, place.graph->graph, place.needs, place.need_count, &p);
	return place_filled(&place, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, r);
}

CUresult worker_do_gleamGraphEdges(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphEdges *m)
{
	CUgraphNode from[EDGES_MAX], to[EDGES_MAX];
	CUgraphEdgeData data[EDGES_MAX];
	struct graph *g = graph_of(w, m->graph);
	uint32_t count = m->from_count;
	CUresult r;

	if (!g)
		return CUDA_ERROR_INVALID_HANDLE;
	if (g->root->exec || count != m->to_count || count > EDGES_MAX ||
	    (m->data_size && m->data_size != count * sizeof(data[0])))
		return CMD_BROKEN;
	for (uint32_t i = 0; i < count; i++) {
		/* Made in the order of a description without cycles. */
		if (m->to[i] >= g->count || m->from[i] >= m->to[i])
			return CMD_BROKEN;
		from[i] = g->nodes[m->from[i]];
		to[i] = g->nodes[m->to[i]];
		if ((!from[i] || !to[i]) && !g->root->failed)
			g->root->failed = CUDA_ERROR_INVALID_VALUE;
	}
	if (g->root->failed)
		return CUDA_SUCCESS;
	if (m->data_size) {
		memcpy(data, m->data, m->data_size);
		r = w->drv.cuGraphAddDependencies_v2(g->graph, from, to, data, count);
	} else {
		r = w->drv.cuGraphAddDependencies(g->graph, from, to, count);
	}
	if (r != CUDA_SUCCESS)
		g->root->failed = r;
	return CUDA_SUCCESS;
}

/* ---- making and changing ---- */

static CUresult make(struct worker *w, struct graph *g)
{
	CUresult r = w->drv.cuGraphInstantiateWithFlags(&g->exec, g->graph, g->flags);

	if (r != CUDA_SUCCESS)
		g->exec = NULL;
	note(w, "a graph of %u nodes: %d", g->total, (int)r);
	return r;
}

/* The client waits for the answer, so nothing else names the graph before. */
static void make_now(struct worker *w, struct join *join)
{
	struct context *c = &w->contexts[join->b];
	struct graph *g = graph_of(w, join->a);
	CUresult r = CUDA_ERROR_CONTEXT_IS_DESTROYED;

	if (g && c->open && host_calls_wait(w, c, join))
		return;
	if (g && !g->exec && c->open)
		r = context_use(w, c);
	if (r == CUDA_SUCCESS)
		r = make(w, g);
	__atomic_fetch_sub(&w->replies_waiting, 1, __ATOMIC_RELAXED);
	post_reply(w, &join->hdr, r, NULL, 0, NULL);
	free(join);
}

CUresult worker_do_gleamGraphMake(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphMake *m)
{
	struct graph *g = graph_of(w, m->graph);
	struct context *c;

	if (!g)
		return CUDA_ERROR_INVALID_HANDLE; /* its beginning failed, and was told */
	if (g->exec || g->root != g)
		return CMD_BROKEN;
	if (g->failed)
		return g->failed;
	g->flags = m->flags;
	c = must_wait(w, m->graph);
	if (c) {
		struct join *join = later(cmd, c, make_now);

		if (!join)
			return CUDA_ERROR_OUT_OF_MEMORY;
		join->a = m->graph;
		__atomic_fetch_add(&w->replies_waiting, 1, __ATOMIC_RELAXED);
		streams_join(w, c, join);
		return CMD_LATER;
	}
	return make(w, g);
}

/* Kernels of @g set the conditions of @from now, which is kept out of sight. Takes @from's object. */
static void source_take(struct worker *w, struct graph *g, struct graph *from)
{
	struct condition *conditions = realloc(g->conditions, (from->condition_count + 1u) * sizeof(*conditions));

	if (conditions) {
		memcpy(conditions, from->conditions, from->condition_count * sizeof(*conditions));
		g->conditions = conditions;
		g->condition_count = from->condition_count;
	}
	object_erase(w->tables, from->handle);
	graph_bodies_hide(w, from);
	graph_own_free(w, g->source, true);
	g->source = from;
}

CUresult worker_do_gleamGraphUpdate(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphUpdate *m)
{
	struct graph *g = graph_of(w, m->graph);
	struct graph *from = graph_of(w, m->from);
	CUgraphExecUpdateResultInfo info = { .result = CU_GRAPH_EXEC_UPDATE_SUCCESS };
	CUresult r;

	cmd->commands = 0;
	if (!g || !g->exec || !from || from == g || from->exec || from->root != from)
		return CUDA_ERROR_INVALID_HANDLE;
	r = from->failed ? from->failed : w->drv.cuGraphExecUpdate_v2(g->exec, from->graph, &info);
	if (r != CUDA_SUCCESS)
		note(w, "a graph of %u nodes can't be updated: %d, reason %d", g->total, (int)r, (int)info.result);
	if (r == CUDA_SUCCESS && from->condition_count)
		source_take(w, g, from);
	else
		graph_end(w, m->from);
	return r;
}

/* Of the made graph @exec. */
static CUresult node_set(struct worker *w, CUgraphExec exec, CUgraphNode node, struct graph *from)
{
	CUgraphNode source = from->nodes[0];
	CUDA_BATCH_MEM_OP_NODE_PARAMS words;
	CUDA_KERNEL_NODE_PARAMS kernel;
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_MEMCPY3D copy;
	CUcontext context = NULL;
	CUresult r = w->drv.cuCtxGetCurrent(&context);

	if (r != CUDA_SUCCESS)
		return r;
	switch (from->last_type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		r = w->drv.cuGraphKernelNodeGetParams_v2(source, &kernel);
		return r ? r : w->drv.cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		r = w->drv.cuGraphMemcpyNodeGetParams(source, &copy);
		return r ? r : w->drv.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		r = w->drv.cuGraphMemsetNodeGetParams(source, &fill);
		return r ? r : w->drv.cuGraphExecMemsetNodeSetParams(exec, node, &fill, context);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		r = w->drv.cuGraphBatchMemOpNodeGetParams(source, &words);
		return r ? r : w->drv.cuGraphExecBatchMemOpNodeSetParams(exec, node, &words);
	default:
		return CUDA_SUCCESS; /* an empty one has none */
	}
}

CUresult worker_do_gleamGraphSet(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphSet *m)
{
	struct graph *g = graph_of(w, m->graph);
	struct graph *from = graph_of(w, m->from);
	CUresult r;

	cmd->commands = 0;
	if (!g || !g->root->exec || !from || from == g || from->exec || from->root != from)
		return CUDA_ERROR_INVALID_HANDLE;
	if (m->place >= g->count || from->count != 1)
		return CMD_BROKEN;
	r = from->failed ? from->failed : node_set(w, g->root->exec, g->nodes[m->place], from);
	graph_end(w, m->from);
	return r;
}

CUresult worker_do_gleamGraphSwitch(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphSwitch *m)
{
	struct graph *g = graph_of(w, m->graph);

	cmd->commands = 0;
	if (!g || !g->root->exec)
		return CUDA_ERROR_INVALID_HANDLE;
	if (m->place >= g->count)
		return CMD_BROKEN;
	return w->drv.cuGraphNodeSetEnabled(g->root->exec, g->nodes[m->place], m->on != 0);
}

/* ---- running ---- */

CUresult worker_do_gleamGraphLaunch(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphLaunch *m)
{
	struct graph *g = graph_of(w, m->graph);

	if (!g || !g->exec) {
		cmd->commands = 0;
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (!g->launched && must_wait(w, m->graph))
		return CMD_PARK;
	g->launched = true;
	cmd->commands = 1 + g->total / NODES_A_COMMAND;
	return w->drv.cuGraphLaunch(g->exec, cmd->stream);
}

CUresult worker_do_gleamGraphUpload(struct worker *w, struct cmd *cmd, const struct msg_gleamGraphUpload *m)
{
	struct graph *g = graph_of(w, m->graph);

	if (!g || !g->exec) {
		cmd->commands = 0;
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (must_wait(w, m->graph))
		return CMD_PARK;
	return w->drv.cuGraphUpload(g->exec, cmd->stream);
}
