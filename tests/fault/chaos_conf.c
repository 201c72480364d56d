/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of gleam-chaos by name; see chaos_conf.h. */
#include "tests/fault/chaos_conf.h"
#include "tests/lib/value.h"

#include <errno.h>
#include <string.h>

/* A position beyond a pebibyte is never reached. */
#define POSITION_MAX (1ull << 50)

unsigned int chaos_directions(const char *text, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(text, name, length) != 0)
		return 0;
	if (!text[length])
		return 1u << CHAOS_UP | 1u << CHAOS_DOWN;
	if (strcmp(text + length, "-up") == 0)
		return 1u << CHAOS_UP;
	if (strcmp(text + length, "-down") == 0)
		return 1u << CHAOS_DOWN;
	return 0;
}

static int parse_range(const char *text, uint64_t range[2])
{
	const char *colon = strchr(text, ':');
	uint64_t from, to;
	char first[32];
	int err;

	if (strcmp(text, "off") == 0) {
		range[0] = range[1] = PIPE_NEVER;
		return 0;
	}
	if (!colon) {
		err = value_count(text, POSITION_MAX, &from);
		if (!err)
			range[0] = range[1] = from;
		return err;
	}
	if ((size_t)(colon - text) >= sizeof(first))
		return -EINVAL;
	memcpy(first, text, colon - text);
	first[colon - text] = 0;
	err = value_count(first, POSITION_MAX, &from);
	if (!err)
		err = value_count(colon + 1, POSITION_MAX, &to);
	if (!err && to < from)
		err = -EINVAL;
	if (err)
		return err;
	range[0] = from;
	range[1] = to;
	return 0;
}

static int set_delay(struct pipe_conf *conf, const char *value)
{
	return value_time(value, &conf->delay_ns);
}

static int set_rate(struct pipe_conf *conf, const char *value)
{
	return value_rate(value, &conf->rate_bps);
}

static int set_piece(struct pipe_conf *conf, const char *value)
{
	return value_size(value, &conf->piece);
}

static int set_gap(struct pipe_conf *conf, const char *value)
{
	return value_time(value, &conf->gap_ns);
}

static int set_flip(struct pipe_conf *conf, const char *value)
{
	return value_share(value, &conf->flip);
}

static int set_flip_at(struct pipe_conf *conf, const char *value)
{
	return parse_range(value, conf->flip_at);
}

static int set_cut_at(struct pipe_conf *conf, const char *value)
{
	return parse_range(value, conf->cut_at);
}

static int set_stall_at(struct pipe_conf *conf, const char *value)
{
	return parse_range(value, conf->stall_at);
}

static const struct {
	const char *name;
	int (*set)(struct pipe_conf *conf, const char *value);
} settings[] = {
	{ "delay", set_delay },	  { "rate", set_rate },		{ "piece", set_piece },
	{ "gap", set_gap },	  { "flip", set_flip },		{ "flip-at", set_flip_at },
	{ "cut-at", set_cut_at }, { "stall-at", set_stall_at },
};

int chaos_conf_set(struct pipe_conf conf[CHAOS_LANES], const char *name, const char *value)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		unsigned int directions = chaos_directions(name, settings[i].name);
		struct pipe_conf changed[CHAOS_LANES] = { conf[CHAOS_UP], conf[CHAOS_DOWN] };

		if (!directions)
			continue;
		for (int lane = 0; lane < CHAOS_LANES; lane++) {
			int err = directions & 1u << lane ? settings[i].set(&changed[lane], value) : 0;

			if (err)
				return err;
		}
		conf[CHAOS_UP] = changed[CHAOS_UP];
		conf[CHAOS_DOWN] = changed[CHAOS_DOWN];
		return 0;
	}
	return -ENOENT;
}
