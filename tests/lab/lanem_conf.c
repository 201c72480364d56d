/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the emulated LAN by name; see lanem_conf.h. */
#include "tests/lab/lanem_conf.h"
#include "tests/lib/value.h"

#include <errno.h>
#include <string.h>

/* More than any frame's; a slip of the hand beyond. */
#define OVERHEAD_MAX 1000

unsigned int conf_directions(const char *text, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(text, name, length) != 0)
		return 0;
	if (!text[length])
		return 3;
	if (strcmp(text + length, "-ab") == 0)
		return 1;
	if (strcmp(text + length, "-ba") == 0)
		return 2;
	return 0;
}

static int set_rtt(struct lane_conf *conf, const char *value)
{
	uint64_t ns;
	int err = value_time(value, &ns);

	if (!err)
		conf->delay_ns = ns / 2;
	return err;
}

static int set_delay(struct lane_conf *conf, const char *value)
{
	return value_time(value, &conf->delay_ns);
}

static int set_jitter(struct lane_conf *conf, const char *value)
{
	return value_time(value, &conf->jitter_ns);
}

static int set_hold(struct lane_conf *conf, const char *value)
{
	return value_time(value, &conf->hold_ns);
}

static int set_rate(struct lane_conf *conf, const char *value)
{
	return value_rate(value, &conf->rate_bps);
}

static int set_queue(struct lane_conf *conf, const char *value)
{
	return value_size(value, &conf->queue_bytes);
}

static int set_loss(struct lane_conf *conf, const char *value)
{
	return value_share(value, &conf->loss);
}

static int set_reorder(struct lane_conf *conf, const char *value)
{
	return value_share(value, &conf->reorder);
}

static int set_overhead(struct lane_conf *conf, const char *value)
{
	uint64_t bytes;
	int err = value_count(value, OVERHEAD_MAX, &bytes);

	if (!err)
		conf->overhead = bytes;
	return err;
}

static const struct {
	const char *name;
	int (*set)(struct lane_conf *conf, const char *value);
} settings[] = {
	{ "rtt", set_rtt },   { "delay", set_delay },	  { "jitter", set_jitter },
	{ "hold", set_hold }, { "rate", set_rate },	  { "queue", set_queue },
	{ "loss", set_loss }, { "reorder", set_reorder }, { "overhead", set_overhead },
};

int conf_set(struct lane_conf conf[2], const char *name, const char *value)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		unsigned int directions = conf_directions(name, settings[i].name);
		struct lane_conf changed[2] = { conf[0], conf[1] };

		if (!directions)
			continue;
		for (int lane = 0; lane < 2; lane++) {
			int err = directions & 1u << lane ? settings[i].set(&changed[lane], value) : 0;

			if (err)
				return err;
		}
		conf[0] = changed[0];
		conf[1] = changed[1];
		return 0;
	}
	return -ENOENT;
}

bool conf_needs_frames(const struct lane_conf conf[2])
{
	return conf[0].loss > 0 || conf[1].loss > 0 || conf[0].reorder > 0 || conf[1].reorder > 0;
}
