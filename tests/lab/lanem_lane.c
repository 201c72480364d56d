/* SPDX-License-Identifier: Apache-2.0 */
/* One direction of the emulated LAN; see lanem_lane.h. */
#include "tests/lab/lanem_lane.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1000000000u

void lane_conf_default(struct lane_conf *conf)
{
	memset(conf, 0, sizeof(*conf));
	conf->hold_ns = LANE_HOLD_DEFAULT_NS;
	conf->overhead = LANE_OVERHEAD_DEFAULT;
}

void lane_init(struct lane *lane, const struct lane_conf *conf, uint64_t seed)
{
	memset(lane, 0, sizeof(*lane));
	lane->conf = *conf;
	lane->random.state = seed;
}

void lane_fini(struct lane *lane)
{
	for (size_t i = 0; i < lane->heap_count; i++)
		free(lane->heap[i].data);
	free(lane->heap);
	lane->heap = NULL;
	lane->heap_count = lane->heap_room = 0;
}

/* 128 bits: a second of a terabit is 10^12 bits, times 10^9 for nanoseconds. */
static uint64_t send_time_ns(uint64_t rate_bps, uint64_t bytes)
{
	return (uint64_t)((unsigned __int128)bytes * 8 * NS_PER_S / rate_bps);
}

static uint64_t backlog_bytes(const struct lane *lane, uint64_t now_ns)
{
	if (!lane->conf.rate_bps || lane->busy_until_ns <= now_ns)
		return 0;
	return (uint64_t)((unsigned __int128)(lane->busy_until_ns - now_ns) * lane->conf.rate_bps / 8 /
			  NS_PER_S);
}

static uint64_t queue_room_bytes(const struct lane_conf *conf)
{
	if (conf->queue_bytes)
		return conf->queue_bytes;
	return (uint64_t)((unsigned __int128)LANE_QUEUE_DEFAULT_NS * conf->rate_bps / 8 / NS_PER_S);
}

void lane_configure(struct lane *lane, const struct lane_conf *conf, uint64_t now_ns)
{
	uint64_t backlog = backlog_bytes(lane, now_ns);

	lane->conf = *conf;
	lane->busy_until_ns = conf->rate_bps ? now_ns + send_time_ns(conf->rate_bps, backlog) : now_ns;
}

void lane_cut(struct lane *lane, uint64_t until_ns)
{
	lane->cut_until_ns = until_ns;
}

static bool earlier(const struct lane_packet *one, const struct lane_packet *other)
{
	if (one->due_ns != other->due_ns)
		return one->due_ns < other->due_ns;
	return one->number < other->number;
}

static bool heap_add(struct lane *lane, const struct lane_packet *packet)
{
	size_t at = lane->heap_count;

	if (lane->heap_count == lane->heap_room) {
		size_t room = lane->heap_room ? lane->heap_room * 2 : 256;
		struct lane_packet *heap = realloc(lane->heap, room * sizeof(*heap));

		if (!heap)
			return false;
		lane->heap = heap;
		lane->heap_room = room;
	}
	lane->heap_count++;
	while (at > 0 && earlier(packet, &lane->heap[(at - 1) / 2])) {
		lane->heap[at] = lane->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	lane->heap[at] = *packet;
	return true;
}

static void heap_take(struct lane *lane, struct lane_packet *packet_out)
{
	struct lane_packet last = lane->heap[--lane->heap_count];
	size_t at = 0;

	*packet_out = lane->heap[0];
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= lane->heap_count)
			break;
		if (child + 1 < lane->heap_count && earlier(&lane->heap[child + 1], &lane->heap[child]))
			child++;
		if (!earlier(&lane->heap[child], &last))
			break;
		lane->heap[at] = lane->heap[child];
		at = child;
	}
	lane->heap[at] = last;
}

enum lane_verdict lane_push(struct lane *lane, uint64_t now_ns, uint8_t *data, uint32_t size,
			    uint64_t wire_bytes, uint32_t frames)
{
	const struct lane_conf *conf = &lane->conf;
	double loss_dice = random_share(&lane->random);
	double reorder_dice = random_share(&lane->random);
	double jitter_dice = random_share(&lane->random);
	uint64_t on_wire = wire_bytes + (uint64_t)frames * conf->overhead;
	uint64_t backlog = backlog_bytes(lane, now_ns);
	struct lane_packet packet = { .number = lane->next_number++, .data = data, .size = size };
	uint64_t sent_ns = now_ns;
	bool reordered;

	lane->counts.packets++;
	lane->counts.bytes += wire_bytes;
	if (now_ns < lane->cut_until_ns) {
		lane->counts.cut++;
		return LANE_CUT;
	}
	if (loss_dice < conf->loss) {
		lane->counts.lost++;
		return LANE_LOST;
	}
	/* A packet that finds nobody before it is sent whatever its size, else a small queue would pass
	 * nothing. */
	if ((backlog && backlog + on_wire > queue_room_bytes(conf)) ||
	    size > LANE_HELD_BYTES_MAX - lane->held_bytes) {
		lane->counts.full++;
		return LANE_FULL;
	}
	if (conf->rate_bps) {
		if (lane->busy_until_ns < now_ns)
			lane->busy_until_ns = now_ns;
		lane->busy_until_ns += send_time_ns(conf->rate_bps, on_wire);
		sent_ns = lane->busy_until_ns;
	}
	packet.due_ns = sent_ns + conf->delay_ns + (uint64_t)(jitter_dice * (double)conf->jitter_ns);
	reordered = reorder_dice < conf->reorder;
	if (packet.due_ns < lane->last_due_ns)
		packet.due_ns = lane->last_due_ns;
	if (reordered)
		packet.due_ns += conf->hold_ns;
	else
		lane->last_due_ns = packet.due_ns;
	if (!heap_add(lane, &packet)) {
		lane->counts.full++;
		return LANE_FULL;
	}
	lane->counts.reordered += reordered;
	lane->held_bytes += size;
	return LANE_TAKEN;
}

bool lane_pop(struct lane *lane, uint64_t now_ns, struct lane_packet *packet_out)
{
	while (lane->heap_count && lane->heap[0].due_ns <= now_ns) {
		struct lane_packet packet;

		heap_take(lane, &packet);
		lane->held_bytes -= packet.size;
		if (now_ns < lane->cut_until_ns) {
			lane->counts.cut++;
			free(packet.data);
			continue;
		}
		lane->counts.delivered++;
		*packet_out = packet;
		return true;
	}
	return false;
}

uint64_t lane_next_ns(const struct lane *lane)
{
	return lane->heap_count ? lane->heap[0].due_ns : LANE_NEVER;
}
