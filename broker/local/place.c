/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler in gleamd. Control thread; see place.h. */
#include "broker/local/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/core/pings.h"
#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/cache.h"
#include "broker/local/client_private.h"
#include "broker/local/netwatch.h"
#include "broker/local/place_move.h"
#include "broker/local/place_store.h"
#include "broker/local/sched_share.h"
#include "broker/local/server.h"

#define PLACE_TICK_NS	  (500 * NS_PER_MS) /* as often as reports come */
#define PLACE_LOOK_NS	  (1 * NS_PER_S)
#define PLACE_SAVE_NS	  (30 * NS_PER_S)
#define PLACE_SETTLE_NS	  (400 * NS_PER_MS) /* for a first link and report; a LAN needs a tenth of it */
#define PLACE_SHARE_LEAST_S 0.2 /* between two reports of which shares are told */
#define PLACE_LEAVING_NS  (1500 * NS_PER_MS)
#define PLACE_LEAVING_MAX 64u
#define PLACE_PROBE_LESS  6.0 /* a probe that says so many times less than traffic has is believed; 4.6 was seen on a link that had not changed */
#define PLACE_PROBE_MORE  4.0 /* likewise more; 2.1 was seen behind a shaper */
#define PLACE_FRESH_NS	  (3 * NS_PER_S) /* a bandwidth that traffic has shown is believed for so long */

/* A client that is gone, until its node has told what it used at the end. */
struct leaving {
	uint32_t session; /* 0: free */
	unsigned server;
	uint64_t key, key_any;
	uint64_t due_ns;
	struct client_before before;
	struct sched_usage usage;
};

/* What sched_request.uncached is asked about. */
struct uncached {
	const struct place *place;
	const struct sched_profile *profile;
};

struct placed_server {
	bool drained; /* by us */
	bool keeps;   /* and who is there stays */
	struct netwatch_link interface; /* name "": not known */
	const struct link *link;	/* of which that is; only compared */
	uint64_t interface_ns;
	uint64_t lane_bandwidth;
	uint64_t lane_ns;     /* when it changed last */
	double bandwidth;     /* as decisions see it */
};

struct place {
	struct broker *broker;
	struct loop *loop;
	struct sched *sched;
	struct sched_profiles *profiles;
	struct place_store *store;
	struct netwatch *watch;
	uint64_t born_ns;
	bool stopped;
	bool learned; /* since the last save */
	uint64_t look_ns;
	uint64_t save_ns;
	uint64_t settle_ns; /* until when a first decision waits; 0: has not begun */
	struct loop_timer tick;
	struct placed_server servers[CONF_SERVERS_MAX];
	struct leaving leaving[PLACE_LEAVING_MAX];
	struct place_moves moves;
};

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_S;
}

double place_now(const struct place *place)
{
	return seconds(loop_now_ns(place->loop) - place->born_ns);
}

/* ---- servers ---- */

/* Pings that are timed err: what each packet costs besides makes a link seem slower, what a shaper lets through at once makes it seem faster. */
static bool contradicts(double probe, double traffic)
{
	return probe < traffic / PLACE_PROBE_LESS || probe > traffic * PLACE_PROBE_MORE;
}

/*
 * What a link carries. Traffic shows it best, while it is young, and later unless the timed pings contradict it; without traffic they tell, as
 * far as they can; else the interface.
 */
static double bandwidth_of(struct placed_server *placed, const struct link_stats *stats, uint64_t now)
{
	double most = placed->interface.rate > 0 ? placed->interface.rate : SCHED_UNKNOWN;
	double lane = (double)stats->bandwidth;
	double probe = (double)stats->probe_bandwidth;

	if (stats->bandwidth != placed->lane_bandwidth) {
		placed->lane_bandwidth = stats->bandwidth;
		placed->lane_ns = now;
	}
	if (lane > 0 && now - placed->lane_ns < PLACE_FRESH_NS)
		return most > 0 && most < lane ? most : lane;
	if (stats->probe_tells && probe > 0 && (lane <= 0 || contradicts(probe, lane)))
		return most > 0 && most < probe ? most : probe;
	/* More than pings can tell is a contradiction, too. */
	if (lane > 0 && (lane * PLACE_PROBE_MORE >= (double)PINGS_RATE_MAX || !stats->probe_tells || probe > 0))
		return most > 0 && most < lane ? most : lane;
	return most;
}

static double own_busy(const struct report *report)
{
	return report->busy_yours_milli / 1000.0;
}

static void server_look(struct place *place, unsigned index)
{
	struct placed_server *placed = &place->servers[index];
	const struct server *server = broker_server(place->broker, index);
	const struct report *report = server_report(server);
	struct link *link = server_link(server);
	struct sched_node_state state = *sched_node_state(place->sched, index);
	uint64_t now = loop_now_ns(place->loop);

	state.up = link != NULL;
	if (link) {
		struct link_stats stats;

		link_stats(link, &stats);
		/* Which it is changes with the link alone; what it is like, once a second or when it is told. */
		if (placed->link != link || now - placed->interface_ns >= PLACE_LOOK_NS) {
			if (!netwatch_of_socket(place->watch, link_fd(link), &placed->interface))
				placed->interface = (struct netwatch_link){ 0 };
			placed->link = link;
			placed->interface_ns = now;
		}
		/* Its carrier is gone: the link doesn't know that yet. */
		if (placed->interface.name[0] && !placed->interface.running)
			state.up = false;
		state.rtt = stats.rtt_low_ns ? seconds(stats.rtt_low_ns) : stats.tcp_rtt_us ? stats.tcp_rtt_us / 1e6 : SCHED_UNKNOWN;
		state.jitter = stats.rtt_mean_ns ? seconds(stats.jitter_ns) : SCHED_UNKNOWN;
		state.bandwidth = placed->bandwidth = bandwidth_of(placed, &stats, now);
	}
	state.keeps = placed->drained && placed->keeps;
	state.draining = placed->drained || (report && report->draining);
	if (report) {
		double most = SCHED_UNKNOWN, free = SCHED_UNKNOWN, speed = 0;

		for (uint32_t i = 0; i < report->gpu_count; i++) {
			const struct report_gpu *gpu = &report->gpus[i];

			if ((double)gpu->memory > most)
				most = (double)gpu->memory;
			if (gpu->memory_free != REPORT_UNKNOWN && (double)gpu->memory_free > free)
				free = (double)gpu->memory_free;
			/* A program that takes the first is what there is. */
			if (i == 0)
				speed = (double)gpu->speed / (double)REPORT_SPEED_ONE;
		}
		/* None yet may be none known yet: the driver is still being asked. */
		state.gpus = report->gpu_count ? report->gpu_count : SCHED_UNKNOWN;
		state.speed = speed > 0 ? speed : SCHED_UNKNOWN;
		state.memory = most;
		state.memory_free = free;
		state.busy = report->busy_now_milli / 1000.0;
		state.busy_own = own_busy(report);
		state.link_busy = state.bandwidth > 0 ? (double)report->others_rate / state.bandwidth : 0;
		if (state.link_busy > 0.9)
			state.link_busy = 0.9;
		state.sessions = report->sessions;
		state.sessions_max = report->sessions_max;
		state.warm = report->warm;
		state.told_at = seconds(server_told_ns(server) - place->born_ns);
	}
	sched_node_set(place->sched, index, &state, place_now(place));
}

static void servers_look(struct place *place)
{
	for (unsigned i = 0; i < broker_server_count(place->broker); i++)
		server_look(place, i);
}

static void interfaces_changed(void *owner)
{
	struct place *place = owner;

	for (unsigned i = 0; i < broker_server_count(place->broker); i++)
		place->servers[i].interface_ns = 0;
	servers_look(place);
}

int place_server_add(struct place *place, const char *name)
{
	struct placed_server *placed = &place->servers[sched_node_count(place->sched)];

	*placed = (struct placed_server){ .bandwidth = SCHED_UNKNOWN };
	return sched_node_add(place->sched, name) == SCHED_NONE ? -ENOMEM : 0;
}

void place_drain(struct place *place, unsigned server, bool on, bool keep)
{
	if (place->servers[server].drained != on)
		log_info("server %s: %s", sched_node_name(place->sched, server),
			 on ? "drained: no new client of this machine goes there" : "takes new clients again");
	place->servers[server].drained = on;
	place->servers[server].keeps = keep;
	server_look(place, server);
}

unsigned place_clients(const struct place *place, unsigned server)
{
	unsigned count = 0;

	for (unsigned i = 0; i < broker_client_count(place->broker); i++) {
		const struct client *client = broker_client(place->broker, i);

		count += client->placed && client->server == broker_server(place->broker, server);
	}
	return count;
}

bool place_is_drained(const struct place *place, unsigned server)
{
	return place->servers[server].drained;
}

const char *place_interface(const struct place *place, unsigned server)
{
	return place->servers[server].interface.name;
}

double place_interface_rate(const struct place *place, unsigned server)
{
	return place->servers[server].interface.rate;
}

double place_bandwidth(const struct place *place, unsigned server)
{
	return place->servers[server].bandwidth;
}

/* ---- clients ---- */

int place_server_index(const struct place *place, const struct server *server)
{
	for (unsigned i = 0; i < broker_server_count(place->broker); i++)
		if (broker_server(place->broker, i) == server)
			return (int)i;
	return -1;
}

static double speed_of(const struct place *place, unsigned server)
{
	double speed = sched_node_state(place->sched, server)->speed;

	return speed > 0 ? speed : 1;
}

static void usage_gpu(const struct place *place, struct sched_usage *usage, const struct report_seat *seat,
		      const struct client_before *before, unsigned server)
{
	usage->gpu_wall = before->gpu_wall + seat->busy_us / 1e6;
	usage->gpu = before->gpu / speed_of(place, server) + seat->gpu_us / 1e6;
}

static bool client_usage(const struct place *place, struct client *client, struct sched_usage *usage_out)
{
	const struct cache_counts *counts = cache_client_counts(client->cache);
	int server = place_server_index(place, client->server);
	struct client_view view;
	double down;

	if (!client->placed || server < 0 || !client_view(client, &view))
		return false;
	if (view.memory > client->memory_most && view.memory < 1ull << 48)
		client->memory_most = view.memory;
	/* The counters are the client's own: nonsense there spoils what is known of its program, nothing else. */
	down = (double)view.bytes - (double)client->uploaded;
	*usage_out = (struct sched_usage){
		.wall = seconds(loop_now_ns(place->loop) - client->live_ns),
		.waited = seconds(view.waited_ns),
		.trips = (double)view.round_trips,
		.bytes_up = (double)(client->uploaded > counts->bytes ? client->uploaded - counts->bytes : 0),
		.model = (double)counts->bytes,
		.sample_count = counts->sample_count,
		.bytes_down = down > (double)view.received ? down : (double)view.received,
		.memory = (double)client->memory_most,
	};
	memcpy(usage_out->samples, counts->samples, sizeof(usage_out->samples));
	usage_gpu(place, usage_out, &client->seat, &client->before, (unsigned)server);
	return true;
}

/* By samples: what of them the node holds it holds of the whole, as good as. */
static double uncached(void *arg, uint32_t node)
{
	const struct uncached *about = arg;
	const struct sched_profile *profile = about->profile;
	const struct cache_server *cache = server_cache(broker_server(about->place->broker, node));
	const struct held *held = cache ? cache_server_held(cache) : NULL;
	uint32_t there = 0;

	if (!profile || profile->model <= 0)
		return 0;
	for (uint32_t i = 0; held && i < profile->sample_count; i++)
		there += held_may(held, profile->samples[i].print, profile->samples[i].size);
	/* Who uploads something else each time finds none of it there. */
	return profile->sample_count ? profile->model * (1 - profile->repeats * there / profile->sample_count) : profile->model;
}

static void request_of(const struct place *place, const struct client *client, struct uncached *about, struct sched_request *request_out)
{
	const char *slash = strrchr(client->program, '/');
	const struct sched_profile *own = sched_profile_find(place->profiles, client->route.program.key);

	*request_out = (struct sched_request){
		.profile = own ? own : sched_profile_find(place->profiles, client->route.program.key_any),
		.rough = !own,
		.uncached = uncached,
		.uncached_arg = about,
		.key = client->route.program.key,
		.program = slash ? slash + 1 : client->program,
		.pid = client->pid,
		.uid = client->uid,
		.priority = client->route.program.priority,
		.wanted = client->route.wanted,
	};
	*about = (struct uncached){ .place = place, .profile = request_out->profile };
}

bool place_is_settled(struct place *place, const char *wanted)
{
	uint64_t now = loop_now_ns(place->loop);
	bool news = false;

	if (*wanted || broker_server_count(place->broker) < 2 || strcmp(sched_policy(place->sched), "pinned") == 0)
		return true;
	for (unsigned i = 0; i < broker_server_count(place->broker); i++) {
		struct server *server = broker_server(place->broker, i);

		news |= server_is_new(server);
		server_wake(server);
	}
	if (!news || (place->settle_ns && now >= place->settle_ns)) {
		place->settle_ns = news ? place->settle_ns : 0;
		return true;
	}
	if (!place->settle_ns)
		place->settle_ns = now + PLACE_SETTLE_NS;
	return false;
}

int place_pick(struct place *place, const struct client *client, uint64_t tried, uint64_t *decision_out, char *why, size_t why_size)
{
	struct sched_request request;
	struct uncached about;
	uint32_t node;

	servers_look(place);
	request_of(place, client, &about, &request);
	request.tried = &tried;
	request.even_down = true; /* trying tells why it can't be reached, and it may be back */
	node = sched_pick(place->sched, &request, place_now(place), decision_out, why, why_size);
	return node == SCHED_NONE ? -1 : (int)node;
}

void place_failed(struct place *place, unsigned server)
{
	sched_node_failed(place->sched, server, place_now(place));
}

static void place_arm(struct place *place)
{
	if (!place->tick.place && !place->stopped)
		loop_timer_set(place->loop, &place->tick, loop_now_ns(place->loop) + PLACE_TICK_NS);
}

void place_client_live(struct place *place, struct client *client)
{
	int server = place_server_index(place, client->server);
	struct sched_request request;
	struct uncached about;

	if (server < 0 || client->placed)
		return;
	request_of(place, client, &about, &request);
	client->live_ns = loop_now_ns(place->loop);
	client->placed = sched_client_add(place->sched, client->mirror.id, (uint32_t)server, client->route.decision, &request,
					  place_now(place)) == 0;
	place_arm(place);
}

void place_client_moved(struct place *place, struct client *client, uint32_t session, const struct server *from)
{
	int old = place_server_index(place, from), new = place_server_index(place, client->server);

	if (!client->placed || old < 0 || new < 0)
		return;
	client->before.gpu += client->seat.gpu_us / 1e6 * speed_of(place, (unsigned)old);
	client->before.gpu_wall += client->seat.busy_us / 1e6;
	client->before.moved = true;
	/* The new server counts from nothing, and its GPU has other times. */
	client->seat = (struct report_seat){ 0 };
	client->seat_ns = 0;
	client->latency_best_us = 0;
	client->pace = 0;
	sched_client_moved(place->sched, session, client->mirror.id, (uint32_t)new, place_now(place));
}

static void learn(struct place *place, const struct leaving *leaving)
{
	const struct sched_node_state *state = sched_node_state(place->sched, leaving->server);
	double speed = sched_node_speed(place->sched, leaving->server, place_now(place));

	/* Its GPU is still being measured: seconds there can't be compared yet. Of a run on two servers nobody can tell what took them. */
	if (state->speed <= 0 || leaving->before.moved)
		return;

	sched_profile_learn(place->profiles, leaving->key, &leaving->usage, speed, state->rtt, state->bandwidth);
	if (leaving->key_any != leaving->key)
		sched_profile_learn(place->profiles, leaving->key_any, &leaving->usage, speed, state->rtt, state->bandwidth);
	place->learned = true;
}

void place_client_over(struct place *place, struct client *client, bool whole)
{
	struct sched_usage usage;
	bool known = client_usage(place, client, &usage);
	int server = place_server_index(place, client->server);
	struct leaving *free_one = NULL;

	if (!client->placed)
		return;
	client->placed = false;
	sched_client_remove(place->sched, client->mirror.id, known && whole ? &usage : NULL, place_now(place));
	if (!known || !whole || server < 0)
		return;
	for (unsigned i = 0; i < PLACE_LEAVING_MAX && !free_one; i++)
		if (!place->leaving[i].session)
			free_one = &place->leaving[i];
	if (!free_one)
		return; /* hundreds end at once: some teach nothing */
	*free_one = (struct leaving){
		.session = client->mirror.id,
		.server = (unsigned)server,
		.key = client->route.program.key,
		.key_any = client->route.program.key_any,
		.due_ns = loop_now_ns(place->loop) + PLACE_LEAVING_NS,
		.before = client->before,
		.usage = usage,
	};
	place_arm(place);
}

static const struct report_seat *seat_find(const struct report *report, uint32_t session)
{
	for (uint32_t i = 0; i < report->seat_count; i++)
		if (report->seats[i].session == session)
			return &report->seats[i];
	return NULL;
}

/* What it has had of the GPU since the last report. False: too little time has passed to tell. */
static bool share_of(const struct place *place, struct client *client, const struct report_seat *seat, struct share_client *out)
{
	uint64_t now = loop_now_ns(place->loop);
	double passed = seconds(now - client->seat_ns);
	bool told = client->seat_ns != 0 && passed > PLACE_SHARE_LEAST_S && seat->busy_us >= client->seat.busy_us &&
		    seat->gpu_us >= client->seat.gpu_us;

	if (seat->latency_us && (!client->latency_best_us || seat->latency_us < client->latency_best_us))
		client->latency_best_us = seat->latency_us;
	*out = (struct share_client){
		.priority = client->route.program.priority,
		.gpu = told ? (double)(seat->gpu_us - client->seat.gpu_us) / 1e6 / passed : 0,
		.busy = told ? (double)(seat->busy_us - client->seat.busy_us) / 1e6 / passed : 0,
		.latency = seat->latency_us ? seat->latency_us / 1e6 : SCHED_UNKNOWN,
		.latency_best = client->latency_best_us ? client->latency_best_us / 1e6 : SCHED_UNKNOWN,
		.rate = told ? (double)(client->commands - client->commands_told) / passed : 0,
		.limit = client->pace,
	};
	client->seat = *seat;
	client->seat_ns = now;
	client->commands_told = client->commands;
	return told;
}

/* Nobody is to have more of a GPU than others let him: what he may send follows what reports tell. */
static void share(struct place *place, unsigned server, const struct report *report)
{
	struct share_client shares[REPORT_SEATS_MAX];
	struct client *clients[REPORT_SEATS_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < broker_client_count(place->broker) && count < REPORT_SEATS_MAX; i++) {
		struct client *client = broker_client(place->broker, i);
		const struct report_seat *seat;

		if (!client->placed || client->server != broker_server(place->broker, server))
			continue;
		seat = seat_find(report, client->mirror.id);
		if (seat && share_of(place, client, seat, &shares[count]))
			clients[count++] = client;
	}
	sched_share(shares, count);
	for (unsigned i = 0; i < count; i++) {
		struct client *client = clients[i];

		if (shares[i].limit > 0 && client->pace <= 0)
			log_info("pid %d (%s): held to %.0f commands a second, since others on %s wait", client->pid, client->program,
				 shares[i].limit, sched_node_name(place->sched, server));
		else if (shares[i].limit <= 0 && client->pace > 0)
			log_info("pid %d (%s): not held back any more", client->pid, client->program);
		if (client->pace <= 0)
			client->pace_ns = loop_now_ns(place->loop);
		client->pace = shares[i].limit;
	}
}

void place_report(struct place *place, unsigned server, const struct report *report)
{
	const struct report_seat *seat;

	share(place, server, report);
	for (unsigned i = 0; i < PLACE_LEAVING_MAX; i++) {
		struct leaving *leaving = &place->leaving[i];

		if (!leaving->session || leaving->server != server)
			continue;
		seat = seat_find(report, leaving->session);
		if (!seat)
			continue;
		usage_gpu(place, &leaving->usage, seat, &leaving->before, server);
		learn(place, leaving);
		leaving->session = 0;
	}
	server_look(place, server);
}

/* ---- time ---- */

static void place_tick(void *arg)
{
	struct place *place = arg;
	uint64_t now = loop_now_ns(place->loop);
	bool leaving = false;

	if (now - place->look_ns >= PLACE_LOOK_NS) {
		place->look_ns = now;
		netwatch_look(place->watch);
	}
	servers_look(place);
	for (unsigned i = 0; i < broker_client_count(place->broker); i++) {
		struct client *client = broker_client(place->broker, i);
		struct sched_usage usage;

		if (client->state == CLIENT_LIVE && client_usage(place, client, &usage))
			sched_client_used(place->sched, client->mirror.id, &usage, place_now(place));
	}
	for (unsigned i = 0; i < PLACE_LEAVING_MAX; i++) {
		struct leaving *one = &place->leaving[i];

		/* Its node is gone, too: what the last report told has to do. */
		if (one->session && now > one->due_ns) {
			learn(place, one);
			one->session = 0;
		}
		leaving |= one->session != 0;
	}
	place_moves_tick(&place->moves);
	if (place->learned && now - place->save_ns > PLACE_SAVE_NS) {
		place_store_save(place->store, place->profiles);
		place->learned = false;
		place->save_ns = now;
	}
	/* With one server, and nobody there, there is nothing to decide and nothing to see. */
	if (broker_server_count(place->broker) > 1 || broker_client_count(place->broker) || leaving || place->learned)
		place_arm(place);
}

/* ---- life ---- */

int place_policy_set(struct place *place, const char *name)
{
	int err = sched_policy_set(place->sched, name);

	if (!err)
		log_info("scheduler: policy %s", name);
	return err;
}

const struct sched *place_sched(const struct place *place)
{
	return place->sched;
}

struct sched *place_sched_now(struct place *place)
{
	servers_look(place);
	return place->sched;
}

struct place *place_new(struct broker *broker, struct loop *loop, const struct conf *conf, char *why, size_t why_size)
{
	struct place *place = calloc(1, sizeof(*place));

	snprintf(why, why_size, "out of memory");
	if (!place)
		return NULL;
	place->broker = broker;
	place->loop = loop;
	place->born_ns = loop_now_ns(loop) ? loop_now_ns(loop) : clock_ns();
	place->tick.fire = place_tick;
	place->tick.arg = place;
	place->sched = sched_new(clock_ns());
	place->profiles = sched_profiles_new();
	if (!place->sched || !place->profiles)
		goto free_place;
	if (sched_policy_set(place->sched, conf->policy)) {
		size_t at = (size_t)snprintf(why, why_size, "[scheduler] policy: `%s` is not a policy; there are", conf->policy);

		for (unsigned i = 0; sched_policy_name(i) && at < why_size; i++)
			at += (size_t)snprintf(why + at, why_size - at, "%s %s", i ? "," : "", sched_policy_name(i));
		goto free_place;
	}
	place_moves_init(&place->moves, broker, place, conf->migrate);
	place->store = place_store_open(conf, place->profiles);
	place->watch = netwatch_new(loop, interfaces_changed, place);
	if (!place->store || !place->watch)
		goto free_place;
	return place;

free_place:
	place_free(place);
	return NULL;
}

void place_stop(struct place *place)
{
	if (!place || place->stopped)
		return;
	place->stopped = true;
	loop_timer_clear(place->loop, &place->tick);
	for (unsigned i = 0; i < PLACE_LEAVING_MAX; i++)
		if (place->leaving[i].session)
			learn(place, &place->leaving[i]);
	if (place->learned)
		place_store_save(place->store, place->profiles);
	netwatch_stop(place->watch);
}

bool place_is_stopped(const struct place *place)
{
	return netwatch_is_stopped(place->watch);
}

void place_free(struct place *place)
{
	if (!place)
		return;
	netwatch_free(place->watch);
	place_store_close(place->store);
	sched_profiles_free(place->profiles);
	sched_free(place->sched);
	free(place);
}
