/* SPDX-License-Identifier: Apache-2.0 */
/* Values as people write them; see value.h. */
#include "tests/lib/value.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Beyond a day, a terabit and a tebibyte it is a slip of the hand, and sums in 64 bits stay safe below. */
#define TIME_NS_MAX    86400e9
#define RATE_BPS_MAX   1e12
#define SIZE_BYTES_MAX 1099511627776.0

struct unit {
	const char *name;
	double factor;
};

static const struct unit time_units[] = {
	{ "", 1e6 }, { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { "min", 60e9 }, { NULL, 0 },
};
static const struct unit rate_units[] = {
	{ "", 1 },	 { "bit", 1 }, { "k", 1e3 },	{ "kbit", 1e3 }, { "m", 1e6 },
	{ "mbit", 1e6 }, { "g", 1e9 }, { "gbit", 1e9 }, { NULL, 0 },
};
static const struct unit size_units[] = {
	{ "", 1 },	    { "b", 1 },	      { "k", 1024 },	  { "kib", 1024 }, { "m", 1 << 20 },
	{ "mib", 1 << 20 }, { "g", 1 << 30 }, { "gib", 1 << 30 }, { NULL, 0 },
};
static const struct unit share_units[] = { { "", 1 }, { "%", 0.01 }, { NULL, 0 } };

/* strtod() knows more than we want: signs, hexadecimal, "inf" and "nan". */
static int parse(const char *text, const struct unit *units, double max, double *value_out)
{
	char *end;
	double value;

	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return -EINVAL;
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return -EINVAL;
	value = strtod(text, &end);
	if (end == text || !isfinite(value))
		return -EINVAL;
	for (; units->name; units++) {
		if (strcasecmp(end, units->name) != 0)
			continue;
		value *= units->factor;
		if (value > max)
			return -ERANGE;
		*value_out = value;
		return 0;
	}
	return -EINVAL;
}

static int parse_whole(const char *text, const struct unit *units, double max, uint64_t *value_out)
{
	double value;
	int err = parse(text, units, max, &value);

	if (!err)
		*value_out = (uint64_t)(value + 0.5);
	return err;
}

int value_time(const char *text, uint64_t *ns_out)
{
	return parse_whole(text, time_units, TIME_NS_MAX, ns_out);
}

int value_rate(const char *text, uint64_t *bit_per_s_out)
{
	char bare[32];
	size_t length = strlen(text);

	if (strcmp(text, "unlimited") == 0) {
		*bit_per_s_out = 0;
		return 0;
	}
	if (length >= sizeof(bare))
		return -EINVAL;
	memcpy(bare, text, length + 1);
	if (length > 2 && strcmp(bare + length - 2, "/s") == 0)
		bare[length - 2] = 0;
	return parse_whole(bare, rate_units, RATE_BPS_MAX, bit_per_s_out);
}

int value_size(const char *text, uint64_t *bytes_out)
{
	return parse_whole(text, size_units, SIZE_BYTES_MAX, bytes_out);
}

int value_share(const char *text, double *share_out)
{
	return parse(text, share_units, 1.0, share_out);
}

int value_count(const char *text, uint64_t max, uint64_t *count_out)
{
	unsigned long long value;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno == ERANGE || value > max)
		return -ERANGE;
	*count_out = value;
	return 0;
}
