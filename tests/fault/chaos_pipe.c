/* SPDX-License-Identifier: Apache-2.0 */
/* One direction of one proxied connection; see chaos_pipe.h. */
#include "tests/fault/chaos_pipe.h"

#include <string.h>

#define NS_PER_S 1000000000u
/* A limited rate is passed on in portions of so much time. */
#define RATE_PORTION_NS 5000000u

void pipe_conf_default(struct pipe_conf *conf)
{
	memset(conf, 0, sizeof(*conf));
	for (int i = 0; i < 2; i++)
		conf->flip_at[i] = conf->cut_at[i] = conf->stall_at[i] = PIPE_NEVER;
}

static uint64_t draw(struct random *random, const uint64_t range[2])
{
	uint64_t number = random_next(random);

	return range[0] == range[1] ? range[0] : range[0] + number % (range[1] - range[0] + 1);
}

void pipe_init(struct pipe *pipe, const struct pipe_conf *conf, uint64_t seed)
{
	/* Not the data: a quarter of a megabyte for every connection. */
	memset(pipe, 0, offsetof(struct pipe, data));
	pipe->conf = *conf;
	pipe->random.state = seed;
	pipe->flip_at = draw(&pipe->random, conf->flip_at);
	pipe->cut_at = draw(&pipe->random, conf->cut_at);
	pipe->stall_at = draw(&pipe->random, conf->stall_at);
}

void pipe_configure(struct pipe *pipe, const struct pipe_conf *conf)
{
	pipe->conf = *conf;
}

void pipe_forgive(struct pipe *pipe)
{
	pipe->flip_at = pipe->cut_at = pipe->stall_at = PIPE_NEVER;
}

static size_t least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

size_t pipe_room(struct pipe *pipe, uint8_t **where_out)
{
	size_t at = pipe->in_total % PIPE_SIZE;
	uint64_t room = PIPE_SIZE - (pipe->in_total - pipe->out_total);

	if (pipe->mark_count == PIPE_MARKS)
		return 0;
	room = least(room, PIPE_SIZE - at);
	room = least(room, pipe->stall_at > pipe->in_total ? pipe->stall_at - pipe->in_total : 0);
	room = least(room, pipe->cut_at > pipe->in_total ? pipe->cut_at - pipe->in_total : 0);
	*where_out = pipe->data + at;
	return room;
}

static void flip_bit(struct pipe *pipe, uint8_t *byte)
{
	*byte ^= 1u << (random_next(&pipe->random) & 7);
	pipe->flipped++;
}

void pipe_put(struct pipe *pipe, size_t size, uint64_t now_ns)
{
	uint8_t *data = pipe->data + pipe->in_total % PIPE_SIZE;
	unsigned int mark = (pipe->mark_first + pipe->mark_count) % PIPE_MARKS;

	if (pipe->flip_at >= pipe->in_total && pipe->flip_at - pipe->in_total < size)
		flip_bit(pipe, data + (pipe->flip_at - pipe->in_total));
	for (size_t i = 0; pipe->conf.flip > 0 && i < size; i++)
		if (random_share(&pipe->random) < pipe->conf.flip)
			flip_bit(pipe, data + i);
	pipe->in_total += size;
	pipe->mark[mark].end = pipe->in_total;
	pipe->mark[mark].due_ns = now_ns + pipe->conf.delay_ns;
	pipe->mark_count++;
}

size_t pipe_ready(const struct pipe *pipe, uint64_t now_ns, const uint8_t **data_out)
{
	size_t at = pipe->out_total % PIPE_SIZE;
	uint64_t size = 0;

	if (now_ns < pipe->free_ns)
		return 0;
	for (unsigned int i = 0; i < pipe->mark_count; i++) {
		unsigned int mark = (pipe->mark_first + i) % PIPE_MARKS;

		if (pipe->mark[mark].due_ns > now_ns)
			break;
		size = pipe->mark[mark].end - pipe->out_total;
	}
	size = least(size, PIPE_SIZE - at);
	if (pipe->conf.piece)
		size = least(size, pipe->conf.piece);
	if (pipe->conf.rate_bps && size > 1)
		size = least(size, 1 + pipe->conf.rate_bps / 8 * RATE_PORTION_NS / NS_PER_S);
	*data_out = pipe->data + at;
	return size;
}

void pipe_took(struct pipe *pipe, size_t size, uint64_t now_ns)
{
	pipe->out_total += size;
	while (pipe->mark_count && pipe->mark[pipe->mark_first].end <= pipe->out_total) {
		pipe->mark_first = (pipe->mark_first + 1) % PIPE_MARKS;
		pipe->mark_count--;
	}
	pipe->free_ns = now_ns + pipe->conf.gap_ns;
	if (pipe->conf.rate_bps)
		pipe->free_ns += (uint64_t)((unsigned __int128)size * 8 * NS_PER_S / pipe->conf.rate_bps);
}

uint64_t pipe_next_ns(const struct pipe *pipe)
{
	uint64_t due_ns;

	if (!pipe->mark_count)
		return PIPE_NEVER;
	due_ns = pipe->mark[pipe->mark_first].due_ns;
	return due_ns > pipe->free_ns ? due_ns : pipe->free_ns;
}

bool pipe_empty(const struct pipe *pipe)
{
	return pipe->in_total == pipe->out_total;
}

bool pipe_cut_now(const struct pipe *pipe)
{
	return pipe->out_total >= pipe->cut_at;
}
