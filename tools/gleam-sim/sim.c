// SPDX-License-Identifier: Apache-2.0
/*
 * The simulation; see sim.h. What it assumes of the world, apart from what the scheduler assumes:
 *
 * - A GPU is shared by time: a client that has work there waits while others' work runs, in equal parts. How much of the time
 *   each has work follows from how fast each gets on, so it is solved for together, node by node (rates_solve()).
 * - The network rate of a node is shared in equal parts by those who have bytes on the way; a path has a rate of its own.
 * - Within a step the longest of CPU, GPU and upload counts, round trips and downloads add up (as the library works: it
 *   waits for nothing else). A job's needs differ from its program's by the program's spread.
 * - Brokers see reports of the last interval, and measurements with noise; they learn programs from runs of their own.
 */
#include "tools/gleam-sim/sim.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SOLVE_ROUNDS 30	  /* the shares settle within a few */
#define NODE_JOBS    256
#define START_WARM   0.05
#define START_COLD   0.5
#define MOVE_FIXED_S 1.0 /* as gleamd has it */
#define MOVE_PAUSE_S 0.2
#define RETRY_S	     1.0  /* a user whom nobody takes tries again */

enum event_kind { EVENT_ARRIVE, EVENT_PHASE, EVENT_REPORT, EVENT_CHANGE, EVENT_FLAP, EVENT_MOVE };

struct event {
	double at;
	enum event_kind kind;
	uint32_t who;
	uint32_t version;
	uint64_t order; /* of equals the eldest */
};

struct job {
	bool live;
	bool starting;
	uint32_t version;
	unsigned program, user, broker, node;
	double scale;	  /* of its needs */
	double upload;	  /* bytes left, while starting */
	double wait;	  /* seconds left of the context's start, while starting */
	double done;	  /* share of the run, 0 to 1 */
	double rate;	  /* of done, a second; while starting: seconds a second of what is left */
	double busy;	  /* share of time with GPU work */
	double moving;	  /* share of time with bytes on the way */
	double born, changed, ideal, predicted;
	double gpu_wall;
	uint32_t client;
	bool known;
	bool moved;
	bool leaving; /* it runs, while its memory goes to: */
	unsigned to;
};

struct node {
	const struct node_class *class;
	char name[48];
	bool up, silent, draining;
	double rate_factor, rtt_extra, lie;
	unsigned jobs[NODE_JOBS];
	unsigned job_count;
	double memory_used;
	double busy_sum, busy_at; /* integral of busy */
	double busy_now, move_now;
	double told_busy, told_move, told_free, told_at, told_sum;
	unsigned told_jobs;
	bool *cached; /* by program */
	double *told_own, *told_own_move; /* by broker */
};

struct broker {
	struct sched *sched;
	struct sched_profiles *profiles;
	double *noise_rtt, *noise_bandwidth; /* by node */
};

struct sim {
	const struct scenario *sc;
	const struct sim_options *opt;
	double now;
	uint64_t random;
	struct event *heap;
	unsigned heap_count, heap_max;
	uint64_t order;
	struct node *nodes;
	unsigned node_count;
	struct broker *brokers;
	struct job *jobs; /* one a user */
	unsigned user_count;
	uint32_t client_next;
	double *slowdowns, *errors;
	unsigned slowdown_count, slowdown_max, error_count;
	double work;
	struct sim_result result;
	double decide_s;
	unsigned decisions;
};

/* ---- dice ---- */

static double dice(struct sim *sim)
{
	sim->random ^= sim->random >> 12;
	sim->random ^= sim->random << 25;
	sim->random ^= sim->random >> 27;
	return (double)(sim->random * 0x2545f4914f6cdd1dull >> 11) / 9007199254740992.0;
}

static double dice_normal(struct sim *sim)
{
	return sqrt(-2 * log(1 - dice(sim))) * cos(6.283185307179586 * dice(sim));
}

/* ---- events ---- */

static bool event_before(const struct event *a, const struct event *b)
{
	return a->at < b->at || (!(b->at < a->at) && a->order < b->order);
}

static void event_add(struct sim *sim, double at, enum event_kind kind, uint32_t who, uint32_t version)
{
	unsigned i;

	if (sim->heap_count == sim->heap_max) {
		sim->heap_max = sim->heap_max ? 2 * sim->heap_max : 1024;
		sim->heap = realloc(sim->heap, sim->heap_max * sizeof(*sim->heap));
		assert(sim->heap);
	}
	i = sim->heap_count++;
	sim->heap[i] = (struct event){ at, kind, who, version, sim->order++ };
	for (; i && event_before(&sim->heap[i], &sim->heap[(i - 1) / 2]); i = (i - 1) / 2) {
		struct event other = sim->heap[i];

		sim->heap[i] = sim->heap[(i - 1) / 2];
		sim->heap[(i - 1) / 2] = other;
	}
}

static bool event_take(struct sim *sim, struct event *out)
{
	if (!sim->heap_count)
		return false;
	*out = sim->heap[0];
	sim->heap[0] = sim->heap[--sim->heap_count];
	for (unsigned i = 0;;) {
		unsigned least = i;

		for (unsigned c = 2 * i + 1; c <= 2 * i + 2; c++)
			if (c < sim->heap_count && event_before(&sim->heap[c], &sim->heap[least]))
				least = c;
		if (least == i)
			return true;

		struct event other = sim->heap[i];

		sim->heap[i] = sim->heap[least];
		sim->heap[least] = other;
		i = least;
	}
}

/* ---- the world ---- */

static double path_rtt(const struct sim *sim, unsigned broker, const struct node *node)
{
	bool wan = sim->sc->broker_site[broker] != node->class->site;

	return node->class->rtt + node->rtt_extra + (wan ? sim->sc->wan_rtt : 0);
}

static double path_rate(const struct sim *sim, unsigned broker, const struct node *node)
{
	bool wan = sim->sc->broker_site[broker] != node->class->site;
	double rate = node->class->bandwidth * node->rate_factor;

	return wan && sim->sc->wan_bandwidth < rate ? sim->sc->wan_bandwidth : rate;
}

/* The run of a job when @others (GPU) and @movers (network) are in its way: its parts, and the whole. */
static double run_time(const struct sim *sim, const struct job *job, const struct node *node, double others, double movers,
		       double *gpu_out, double *move_out)
{
	const struct program_class *p = &sim->sc->programs[job->program];
	double steps = p->steps * job->scale;
	double rate = fmin(path_rate(sim, job->broker, node), node->class->nic * node->rate_factor / (1 + movers));
	double gpu = steps * p->gpu / node->class->speed * (1 + others / node->class->gpus);
	double up = steps * p->up / rate, down = steps * p->down / rate;
	double longest = fmax(fmax(steps * p->cpu, gpu), up);

	*gpu_out = gpu;
	*move_out = up + down;
	return longest + steps * p->trips * path_rtt(sim, job->broker, node) + down;
}

static double ideal_time(const struct sim *sim, const struct job *job)
{
	double best = INFINITY;

	for (unsigned i = 0; i < sim->node_count; i++) {
		double gpu, move;

		if (sim->sc->programs[job->program].memory <= sim->nodes[i].class->memory)
			best = fmin(best, START_WARM + run_time(sim, job, &sim->nodes[i], 0, 0, &gpu, &move));
	}
	return best;
}

/* How fast the jobs of a node get on together. @jobs may be a trial with one more. */
static void rates_solve(const struct sim *sim, const struct node *node, struct job *const *jobs, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		jobs[i]->busy = jobs[i]->starting ? 0 : 0.5;
		jobs[i]->moving = jobs[i]->starting && jobs[i]->upload > 0 ? 1 : 0.1;
	}
	for (unsigned round = 0; round < SOLVE_ROUNDS; round++) {
		double busy = 0, moving = 0;

		for (unsigned i = 0; i < count; i++) {
			busy += jobs[i]->busy;
			moving += jobs[i]->moving;
		}
		for (unsigned i = 0; i < count; i++) {
			struct job *job = jobs[i];
			double gpu, move, run;

			if (job->starting)
				continue;
			run = run_time(sim, job, node, busy - job->busy, moving - job->moving, &gpu, &move);
			busy -= job->busy;
			moving -= job->moving;
			/* Half the way each time: it settles instead of swinging. */
			job->busy += 0.5 * (fmin(gpu / run, 1) - job->busy);
			job->moving += 0.5 * (fmin(move / run, 1) - job->moving);
			busy += job->busy;
			moving += job->moving;
			job->rate = 1 / run;
		}
	}
}

/* Up to now, at the rates that held. */
static void job_advance(struct sim *sim, struct job *job)
{
	double passed = sim->now - job->changed;

	job->changed = sim->now;
	if (passed <= 0)
		return;
	if (job->starting) {
		double wait = fmin(passed, job->wait);

		job->wait -= wait;
		job->upload -= (passed - wait) * job->rate;
		if (job->upload < 1)
			job->upload = 0;
		return;
	}
	job->done = fmin(1, job->done + passed * job->rate);
	job->gpu_wall += passed * job->busy;
}

/* Who is there has changed: everybody's speed does. */
static void node_update(struct sim *sim, unsigned index)
{
	struct node *node = &sim->nodes[index];
	struct job *jobs[NODE_JOBS] = { 0 };
	double movers = 0;

	node->busy_sum += node->busy_now * (sim->now - node->busy_at);
	node->busy_at = sim->now;
	for (unsigned i = 0; i < node->job_count; i++) {
		jobs[i] = &sim->jobs[node->jobs[i]];
		job_advance(sim, jobs[i]);
	}
	rates_solve(sim, node, jobs, node->job_count);
	node->busy_now = node->move_now = 0;
	for (unsigned i = 0; i < node->job_count; i++) {
		node->busy_now += jobs[i]->busy;
		movers += jobs[i]->moving;
	}
	node->move_now = movers;
	for (unsigned i = 0; i < node->job_count; i++) {
		struct job *job = jobs[i];
		double left;

		if (job->starting) {
			job->rate = fmin(path_rate(sim, job->broker, node),
					 node->class->nic * node->rate_factor / (1 + fmax(0, movers - job->moving)));
			left = job->wait + job->upload / job->rate;
		} else {
			left = (1 - job->done) / job->rate;
		}
		event_add(sim, sim->now + left, EVENT_PHASE, node->jobs[i], ++job->version);
	}
}

/* ---- what brokers see ---- */

static void broker_sees(struct sim *sim, unsigned b)
{
	struct broker *broker = &sim->brokers[b];

	for (unsigned i = 0; i < sim->node_count; i++) {
		const struct node *node = &sim->nodes[i];
		double own = node->told_own[b];
		double others = fmax(0, node->told_move - node->told_own_move[b]);
		struct sched_node_state state = {
			.up = node->up,
			.draining = node->draining,
			.rtt = path_rtt(sim, b, node) * broker->noise_rtt[i],
			.jitter = 0,
			.bandwidth = path_rate(sim, b, node) * broker->noise_bandwidth[i],
			.speed = node->class->speed * node->lie,
			.gpus = node->class->gpus,
			.memory = node->class->memory,
			.memory_free = node->told_free,
			.busy = node->lie > 1 ? 0 : node->told_busy,
			.busy_own = node->lie > 1 ? 0 : fmin(own, node->told_busy),
			.link_busy = fmin(0.9, others / (1 + others)),
			.sessions = node->told_jobs,
			.sessions_max = node->class->sessions,
			.warm = node->class->warm,
			.told_at = node->told_at,
		};

		sched_node_set(broker->sched, i, &state, sim->now);
	}
}

static double broker_uncached(void *arg, uint32_t node);

struct uncached {
	const struct sim *sim;
	unsigned program;
};

static double broker_uncached(void *arg, uint32_t node)
{
	const struct uncached *u = arg;

	return u->sim->nodes[node].cached[u->program] ? 0 : u->sim->sc->programs[u->program].model;
}

static void usage_of(const struct sim *sim, const struct job *job, struct sched_usage *out)
{
	const struct program_class *p = &sim->sc->programs[job->program];
	double steps = p->steps * job->scale * job->done;
	double wall = sim->now - job->born;

	*out = (struct sched_usage){
		.wall = wall,
		.waited = fmax(0, wall - steps * p->cpu),
		.gpu = steps * p->gpu / sim->nodes[job->node].class->speed,
		.gpu_wall = job->gpu_wall,
		.trips = steps * p->trips,
		.bytes_up = steps * p->up,
		.bytes_down = steps * p->down,
		.memory = p->memory,
	};
}

/* ---- the oracle: sees the world as it is ---- */

static unsigned oracle_pick(struct sim *sim, struct job *job)
{
	double best = INFINITY;
	unsigned taken = SCHED_NONE;

	for (unsigned i = 0; i < sim->node_count; i++) {
		struct node *node = &sim->nodes[i];
		struct job copies[NODE_JOBS], trial = *job, *jobs[NODE_JOBS] = { 0 };
		const struct program_class *p = &sim->sc->programs[job->program];
		double start, run, harm = 0;

		if (!node->up || node->draining || node->job_count + 1 >= NODE_JOBS || node->job_count >= node->class->sessions ||
		    node->memory_used + p->memory > node->class->memory * node->class->gpus)
			continue;
		trial.node = i;
		trial.starting = false;
		for (unsigned k = 0; k < node->job_count; k++) {
			copies[k] = sim->jobs[node->jobs[k]];
			copies[k].starting = false;
			jobs[k] = &copies[k];
		}
		/* Alone, for those that are there; then with it. */
		rates_solve(sim, node, jobs, node->job_count);

		double before[NODE_JOBS] = { 0 };

		for (unsigned k = 0; k < node->job_count; k++)
			before[k] = copies[k].rate;
		jobs[node->job_count] = &trial;
		rates_solve(sim, node, jobs, node->job_count + 1);
		run = 1 / trial.rate;
		for (unsigned k = 0; k < node->job_count; k++) {
			double left = (1 - sim->jobs[node->jobs[k]].done) / copies[k].rate;

			harm += fmin(left, run) * (1 - copies[k].rate / before[k]);
		}
		start = (node->class->warm ? START_WARM : START_COLD) +
			(node->cached[job->program] ? 0 : p->model / path_rate(sim, job->broker, node));
		if (start + run + sim->opt->altruism * harm < best) {
			best = start + run + sim->opt->altruism * harm;
			taken = i;
		}
	}
	return taken;
}

/* ---- jobs ---- */

static double seconds_of_cpu(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t program_key(unsigned program)
{
	return sched_key(&program, sizeof(program), 0);
}

static void job_place(struct sim *sim, unsigned user, unsigned to, uint64_t decision, const struct sched_request *request)
{
	struct job *job = &sim->jobs[user];
	struct node *node = &sim->nodes[to];
	const struct program_class *p = &sim->sc->programs[job->program];

	job->live = job->starting = true;
	job->leaving = job->moved = false;
	job->node = to;
	job->born = job->changed = sim->now;
	job->done = job->gpu_wall = 0;
	job->wait = node->class->warm ? START_WARM : START_COLD;
	job->upload = node->cached[job->program] ? 0 : p->model;
	job->ideal = ideal_time(sim, job);
	job->client = ++sim->client_next;
	node->jobs[node->job_count++] = user;
	node->memory_used += p->memory;
	if (request)
		sched_client_add(sim->brokers[job->broker].sched, job->client, to, decision, request, sim->now);
	if (sim->sc->flap[0] && strcmp(node->name, sim->sc->flap) == 0)
		sim->result.doubtful++;
	node_update(sim, to);
}

static void user_arrive(struct sim *sim, unsigned user)
{
	struct job *job = &sim->jobs[user];
	struct broker *broker;
	uint64_t decision = 0;
	unsigned to;
	char why[SCHED_TEXT_SIZE];

	if (sim->sc->job_count) {
		job->program = sim->sc->jobs[user].program;
		job->broker = sim->sc->jobs[user].broker;
	} else if (!job->version || job->done >= 1 || job->scale <= 0) {
		double total = 0, at;

		for (unsigned i = 0; i < sim->sc->program_count; i++)
			total += sim->sc->programs[i].weight;
		at = dice(sim) * total;
		for (job->program = 0; job->program + 1 < sim->sc->program_count; job->program++) {
			at -= sim->sc->programs[job->program].weight;
			if (at < 0)
				break;
		}
		job->broker = user % sim->sc->brokers;
	}
	if (job->done >= 1 || job->scale <= 0)
		job->scale = fmax(0.1, 1 + sim->sc->programs[job->program].spread * dice_normal(sim));
	broker = &sim->brokers[job->broker];

	struct uncached uncached = { sim, job->program };
	struct sched_request request = {
		.profile = sched_profile_find(broker->profiles, program_key(job->program)),
		.key = program_key(job->program),
		.program = sim->sc->programs[job->program].name,
		.pid = user,
		.priority = sim->sc->programs[job->program].priority,
		.uncached = broker_uncached,
		.uncached_arg = &uncached,
	};

	job->known = request.profile != NULL;
	if (strcmp(sim->opt->policy, "oracle") == 0) {
		to = oracle_pick(sim, job);
	} else {
		double before;

		broker_sees(sim, job->broker);
		before = seconds_of_cpu();
		to = sched_pick(broker->sched, &request, sim->now, &decision, why, sizeof(why));
		sim->decide_s += seconds_of_cpu() - before;
		sim->decisions++;
		if (to != SCHED_NONE)
			job->predicted = sched_decision(broker->sched, 0)->cost.total;
	}
	/* The node itself refuses what doesn't fit, whatever a broker thought. */
	if (to == SCHED_NONE || sim->nodes[to].job_count + 1 >= NODE_JOBS ||
	    sim->nodes[to].memory_used + sim->sc->programs[job->program].memory >
		    sim->nodes[to].class->memory * sim->nodes[to].class->gpus) {
		sim->result.refused++;
		if (to != SCHED_NONE && decision)
			sched_node_failed(broker->sched, to, sim->now);
		event_add(sim, sim->now + RETRY_S, EVENT_ARRIVE, user, 0);
		return;
	}
	job_place(sim, user, to, decision, decision ? &request : NULL);
}

static void job_leave(struct sim *sim, unsigned user)
{
	struct job *job = &sim->jobs[user];
	struct node *node = &sim->nodes[job->node];

	for (unsigned i = 0; i < node->job_count; i++) {
		if (node->jobs[i] == user) {
			node->jobs[i] = node->jobs[--node->job_count];
			break;
		}
	}
	node->memory_used -= sim->sc->programs[job->program].memory;
	job->live = false;
	job->version++;
}

/* Its memory is there: it is held for a moment, and goes on. A node that is gone or full meanwhile takes nobody. */
static void job_move(struct sim *sim, unsigned user, uint32_t client)
{
	struct job *job = &sim->jobs[user];
	struct node *to = &sim->nodes[job->to];
	double memory = sim->sc->programs[job->program].memory;
	unsigned from = job->node;

	if (!job->live || !job->leaving || job->client != client)
		return;
	job->leaving = false;
	if (!to->up || to->job_count + 1 >= NODE_JOBS || to->memory_used + memory > to->class->memory * to->class->gpus)
		return;
	job_advance(sim, job);
	job_leave(sim, user);
	job->live = job->starting = true;
	job->wait = MOVE_PAUSE_S;
	job->upload = 0;
	job->node = job->to;
	job->client = ++sim->client_next;
	to->jobs[to->job_count++] = user;
	to->memory_used += memory;
	to->cached[job->program] = true;
	sched_client_moved(sim->brokers[job->broker].sched, client, job->client, job->to, sim->now);
	/* Of a run at two places nobody can say how well it was foreseen. */
	job->known = false;
	job->moved = true;
	sim->result.moves++;
	node_update(sim, from);
	node_update(sim, job->to);
}

static unsigned user_of(const struct sim *sim, uint32_t client)
{
	unsigned user = 0;

	while (user < sim->user_count && !(sim->jobs[user].live && sim->jobs[user].client == client))
		user++;
	return user;
}

/* What brokers want: one at a time of each, so that the next one sees what has become of it. */
static void moves_begin(struct sim *sim)
{
	struct sched_move move;

	for (unsigned b = 0; b < sim->sc->brokers && sim->opt->moves; b++) {
		bool busy = false;
		unsigned user;

		for (unsigned i = 0; i < sim->user_count; i++)
			busy |= sim->jobs[i].live && sim->jobs[i].leaving && sim->jobs[i].broker == b;
		if (busy)
			continue;
		broker_sees(sim, b);
		sched_moves_set(sim->brokers[b].sched, true, MOVE_FIXED_S);
		if (!sched_moves(sim->brokers[b].sched, sim->now, &move, 1))
			continue;
		user = user_of(sim, move.client);
		if (user == sim->user_count || sim->jobs[user].starting)
			continue;
		sim->jobs[user].leaving = true;
		sim->jobs[user].to = move.node;
		event_add(sim, sim->now + move.price, EVENT_MOVE, user, move.client);
	}
}

static void user_think(struct sim *sim, unsigned user)
{
	if (!sim->sc->job_count)
		event_add(sim, sim->now - sim->sc->think * log(1 - dice(sim)), EVENT_ARRIVE, user, 0);
}

static void job_end(struct sim *sim, unsigned user)
{
	struct job *job = &sim->jobs[user];
	struct broker *broker = &sim->brokers[job->broker];
	const struct node *node = &sim->nodes[job->node];
	double wall = sim->now - job->born;
	struct sched_usage usage;
	unsigned to = job->node;

	job->done = 1;
	usage_of(sim, job, &usage);
	usage.gpu *= fmax(0.5, 1 + sim->sc->noise * dice_normal(sim));
	sched_client_remove(broker->sched, job->client, &usage, sim->now);
	if (!job->moved)
		sched_profile_learn(broker->profiles, program_key(job->program), &usage, sched_node_speed(broker->sched, to, sim->now),
			    path_rtt(sim, job->broker, node) * broker->noise_rtt[to],
			    path_rate(sim, job->broker, node) * broker->noise_bandwidth[to]);
	job_leave(sim, user);
	node_update(sim, to);
	sim->work += job->ideal;
	sim->result.finished++;
	sim->result.makespan = sim->now;
	if (sim->slowdown_count == sim->slowdown_max) {
		sim->slowdown_max = sim->slowdown_max ? 2 * sim->slowdown_max : 1024;
		sim->slowdowns = realloc(sim->slowdowns, sim->slowdown_max * sizeof(double));
		sim->errors = realloc(sim->errors, sim->slowdown_max * sizeof(double));
		assert(sim->slowdowns && sim->errors);
	}
	sim->slowdowns[sim->slowdown_count++] = wall / job->ideal;
	if (job->known && job->predicted > 0)
		sim->errors[sim->error_count++] = fabs(job->predicted / wall - 1);
	if (sim->opt->trace)
		fprintf(sim->opt->trace, "%u\t%s\t%s\t%.3f\t%.3f\t%.3f\n", user, sim->sc->programs[job->program].name, node->name,
			job->born, sim->now, job->predicted);
	user_think(sim, user);
}

static void job_phase(struct sim *sim, unsigned user)
{
	struct job *job = &sim->jobs[user];

	job_advance(sim, job);
	if (job->starting) {
		job->starting = false;
		/* What a node has got it keeps; memory for that is not what runs out. */
		sim->nodes[job->node].cached[job->program] = true;
		node_update(sim, job->node);
	} else {
		job_end(sim, user);
	}
}

/* ---- trouble ---- */

static void node_down(struct sim *sim, unsigned index)
{
	struct node *node = &sim->nodes[index];

	node->up = false;
	while (node->job_count) {
		unsigned user = node->jobs[0];
		struct job *job = &sim->jobs[user];

		sched_client_remove(sim->brokers[job->broker].sched, job->client, NULL, sim->now);
		job_leave(sim, user);
		job->done = 0;
		sim->result.lost++;
		event_add(sim, sim->now + RETRY_S, EVENT_ARRIVE, user, 0);
	}
	node_update(sim, index);
	/* Brokers notice a lost link at once. */
	for (unsigned b = 0; b < sim->sc->brokers; b++)
		broker_sees(sim, b);
}

static void node_up(struct sim *sim, unsigned index)
{
	sim->nodes[index].up = true;
	for (unsigned b = 0; b < sim->sc->brokers; b++)
		broker_sees(sim, b);
}

static void change_run(struct sim *sim, const struct change *change)
{
	for (unsigned i = 0; i < sim->node_count; i++) {
		struct node *node = &sim->nodes[i];

		if (strcmp(change->node, "*") != 0 && strcmp(change->node, node->name) != 0 && strcmp(change->node, node->class->name) != 0)
			continue;
		switch (change->kind) {
		case CHANGE_DOWN:
			node_down(sim, i);
			break;
		case CHANGE_UP:
			node_up(sim, i);
			break;
		case CHANGE_STALE:
			node->silent = true;
			break;
		case CHANGE_TOLD:
			node->silent = false;
			break;
		case CHANGE_RATE:
			node->rate_factor = change->value / node->class->bandwidth;
			node_update(sim, i);
			break;
		case CHANGE_RTT:
			node->rtt_extra = change->value - node->class->rtt;
			node_update(sim, i);
			break;
		case CHANGE_LIE:
			node->lie = change->value;
			break;
		case CHANGE_DRAIN:
			node->draining = true;
			break;
		}
	}
}

static void reports(struct sim *sim)
{
	for (unsigned i = 0; i < sim->node_count; i++) {
		struct node *node = &sim->nodes[i];
		double sum;

		if (!node->up || node->silent)
			continue;
		sum = node->busy_sum + node->busy_now * (sim->now - node->busy_at);
		node->told_busy = sim->now > node->told_at && node->told_at >= 0 ? (sum - node->told_sum) / (sim->now - node->told_at) :
										   node->busy_now;
		node->told_sum = sum;
		node->told_at = sim->now;
		node->told_move = node->move_now;
		node->told_free = node->class->memory - node->memory_used / node->class->gpus;
		node->told_jobs = node->job_count;
		memset(node->told_own, 0, sim->sc->brokers * sizeof(double));
		memset(node->told_own_move, 0, sim->sc->brokers * sizeof(double));
		for (unsigned k = 0; k < node->job_count; k++) {
			const struct job *job = &sim->jobs[node->jobs[k]];

			node->told_own[job->broker] += job->busy;
			node->told_own_move[job->broker] += job->moving;
		}
	}
	for (unsigned user = 0; user < sim->user_count; user++) {
		struct job *job = &sim->jobs[user];
		struct sched_usage usage;

		if (!job->live)
			continue;
		job_advance(sim, job);
		usage_of(sim, job, &usage);
		sched_client_used(sim->brokers[job->broker].sched, job->client, &usage, sim->now);
	}
	moves_begin(sim);
	event_add(sim, sim->now + sim->sc->report, EVENT_REPORT, 0, 0);
}

/* ---- life ---- */

static int sim_build(struct sim *sim)
{
	const struct scenario *sc = sim->sc;
	unsigned total = 0, at = 0;

	for (unsigned i = 0; i < sc->class_count; i++)
		total += sc->classes[i].count;
	sim->nodes = calloc(total, sizeof(*sim->nodes));
	sim->brokers = calloc(sc->brokers, sizeof(*sim->brokers));
	sim->user_count = sc->job_count ? sc->job_count : (unsigned)fmax(1, round(sc->users * sim->opt->load));
	sim->jobs = calloc(sim->user_count, sizeof(*sim->jobs));
	if (!sim->nodes || !sim->brokers || !sim->jobs)
		return -ENOMEM;
	sim->node_count = total;
	for (unsigned c = 0; c < sc->class_count; c++) {
		for (unsigned k = 0; k < sc->classes[c].count; k++, at++) {
			struct node *node = &sim->nodes[at];

			*node = (struct node){ .class = &sc->classes[c], .up = true, .rate_factor = 1, .lie = 1,
					       .told_free = sc->classes[c].memory, .told_at = -1 };
			snprintf(node->name, sizeof(node->name), sc->classes[c].count > 1 ? "%s.%u" : "%s", sc->classes[c].name, k);
			node->cached = calloc(sc->program_count, sizeof(bool));
			node->told_own = calloc(sc->brokers, sizeof(double));
			node->told_own_move = calloc(sc->brokers, sizeof(double));
			if (!node->cached || !node->told_own || !node->told_own_move)
				return -ENOMEM;
		}
	}
	for (unsigned b = 0; b < sc->brokers; b++) {
		struct broker *broker = &sim->brokers[b];

		broker->sched = sched_new(sim->opt->seed * 1000003ull + b);
		broker->profiles = sched_profiles_new();
		broker->noise_rtt = calloc(total, sizeof(double));
		broker->noise_bandwidth = calloc(total, sizeof(double));
		if (!broker->sched || !broker->profiles || !broker->noise_rtt || !broker->noise_bandwidth)
			return -ENOMEM;
		if (strcmp(sim->opt->policy, "oracle") != 0 && sched_policy_set(broker->sched, sim->opt->policy))
			return -EINVAL;
		for (unsigned i = 0; i < total; i++) {
			if (sched_node_add(broker->sched, sim->nodes[i].name) == SCHED_NONE)
				return -ENOMEM;
			broker->noise_rtt[i] = fmax(0.5, 1 + sc->noise * dice_normal(sim));
			broker->noise_bandwidth[i] = fmax(0.5, 1 + sc->noise * dice_normal(sim));
		}
		for (unsigned p = 0; p < sc->program_count && sc->profiles_known; p++) {
			const struct program_class *pc = &sc->programs[p];
			double gpu = pc->steps * pc->gpu, cpu = pc->steps * pc->cpu;
			struct sched_usage usage = { .wall = fmax(cpu, gpu) + 1e-6, .gpu = gpu, .gpu_wall = gpu, .trips = pc->steps * pc->trips,
						     .bytes_up = pc->steps * pc->up, .bytes_down = pc->steps * pc->down,
						     .memory = pc->memory };

			usage.waited = usage.wall - cpu;
			/* On a network that takes no time: all that is learnt of it is the program. */
			for (int run = 0; run < 3; run++)
				sched_profile_learn(broker->profiles, program_key(p), &usage, 1, 0, INFINITY);
		}
	}
	return 0;
}

static void sim_free(struct sim *sim)
{
	for (unsigned i = 0; i < sim->node_count; i++) {
		free(sim->nodes[i].cached);
		free(sim->nodes[i].told_own);
		free(sim->nodes[i].told_own_move);
	}
	for (unsigned b = 0; sim->brokers && b < sim->sc->brokers; b++) {
		sched_free(sim->brokers[b].sched);
		sched_profiles_free(sim->brokers[b].profiles);
		free(sim->brokers[b].noise_rtt);
		free(sim->brokers[b].noise_bandwidth);
	}
	free(sim->nodes);
	free(sim->brokers);
	free(sim->jobs);
	free(sim->heap);
	free(sim->slowdowns);
	free(sim->errors);
}

static int double_order(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void sim_loop(struct sim *sim)
{
	const struct scenario *sc = sim->sc;
	struct event event;
	unsigned flap = 0;

	reports(sim);
	for (unsigned user = 0; user < sim->user_count; user++)
		event_add(sim, sc->job_count ? sc->jobs[user].at : dice(sim) * (sc->think + 1), EVENT_ARRIVE, user, 0);
	for (unsigned i = 0; i < sc->change_count; i++)
		event_add(sim, sc->changes[i].at, EVENT_CHANGE, i, 0);
	while (flap < sim->node_count && strcmp(sim->nodes[flap].name, sc->flap) != 0)
		flap++;
	if (flap < sim->node_count)
		event_add(sim, sc->flap_period, EVENT_FLAP, flap, 0);
	while (event_take(sim, &event) && event.at <= sc->horizon) {
		sim->now = event.at;
		switch (event.kind) {
		case EVENT_ARRIVE:
			user_arrive(sim, event.who);
			break;
		case EVENT_PHASE:
			if (sim->jobs[event.who].live && sim->jobs[event.who].version == event.version)
				job_phase(sim, event.who);
			break;
		case EVENT_REPORT:
			reports(sim);
			break;
		case EVENT_MOVE:
			job_move(sim, event.who, event.version);
			break;
		case EVENT_CHANGE:
			change_run(sim, &sc->changes[event.who]);
			break;
		case EVENT_FLAP:
			if (sim->nodes[event.who].up)
				node_down(sim, event.who);
			else
				node_up(sim, event.who);
			event_add(sim, sim->now + sc->flap_period, EVENT_FLAP, event.who, 0);
			break;
		}
		if (sc->job_count && sim->result.finished == sc->job_count)
			break;
	}
	if (!sc->job_count)
		sim->now = sc->horizon;
}

int sim_run(const struct scenario *scenario, const struct sim_options *options, struct sim_result *result_out)
{
	struct sim sim = { .sc = scenario, .opt = options, .random = options->seed * 0x9e3779b97f4a7c15ull + 1 };
	int err = sim_build(&sim);

	if (err) {
		sim_free(&sim);
		return err;
	}
	for (unsigned i = 0; i < 16; i++)
		dice(&sim);
	sim_loop(&sim);
	/* What was under way counts as far as it got. */
	for (unsigned user = 0; user < sim.user_count; user++) {
		struct job *job = &sim.jobs[user];

		if (!job->live)
			continue;
		job_advance(&sim, job);
		sim.work += job->starting ? 0 : job->done * job->ideal;
	}
	sim.result.throughput = sim.work / sim.now;
	for (unsigned i = 0; i < sim.slowdown_count; i++)
		sim.result.slowdown += sim.slowdowns[i] / sim.slowdown_count;
	if (sim.slowdown_count) {
		qsort(sim.slowdowns, sim.slowdown_count, sizeof(double), double_order);
		sim.result.slowdown_p95 = sim.slowdowns[sim.slowdown_count * 95 / 100];
	}
	if (sim.error_count) {
		qsort(sim.errors, sim.error_count, sizeof(double), double_order);
		sim.result.error = sim.errors[sim.error_count / 2];
	}
	sim.result.decide_us = sim.decisions ? sim.decide_s / sim.decisions * 1e6 : 0;
	*result_out = sim.result;
	sim_free(&sim);
	return 0;
}
