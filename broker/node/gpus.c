/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs a client gets; see gpus.h. */
#include "broker/node/gpus.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "broker/lib/visible.h"

static_assert(VISIBLE_MAX == REPORT_GPUS_MAX, "as many GPUs as a node reports");

/* Fewer clients, then more free memory, then the earlier one. */
static bool is_better(const struct gpus_have *have, uint32_t a, uint32_t b)
{
	uint64_t free_a = have->gpus[a].memory_free, free_b = have->gpus[b].memory_free;

	if (have->gpus[a].clients != have->gpus[b].clients)
		return have->gpus[a].clients < have->gpus[b].clients;
	if (free_a != REPORT_UNKNOWN && free_b != REPORT_UNKNOWN && free_a != free_b)
		return free_a > free_b;
	return a < b;
}

/* Of @places keeps the @count least taken ones, in the order in which they are. */
static void least_taken_keep(const struct gpus_have *have, uint32_t *places, uint32_t *places_count, uint32_t count)
{
	while (*places_count > count) {
		uint32_t worst = 0;

		for (uint32_t i = 1; i < *places_count; i++)
			if (is_better(have, places[worst], places[i]))
				worst = i;
		(*places_count)--;
		memmove(places + worst, places + worst + 1, (*places_count - worst) * sizeof(*places));
	}
}

static void text_make(const struct gpus_have *have, const uint32_t *places, uint32_t count, char *text)
{
	char uuid[VISIBLE_UUID_SIZE];

	*text = 0;
	for (uint32_t i = 0; i < count; i++) {
		visible_uuid_text(have->gpus[places[i]].uuid, uuid);
		text += sprintf(text, "%sGPU-%s", i ? "," : "", uuid);
	}
}

int gpus_choose(const struct gpus_have *have, const struct gpus_wish *wish, struct gpus_choice *choice_out, char *why,
		size_t why_size)
{
	/* A client whose broker has picked its GPUs gets all of them unless it says otherwise. */
	uint32_t most = wish->only ? UINT32_MAX : 1;
	uint32_t allowed[VISIBLE_MAX], allowed_count, chosen[VISIBLE_MAX], count;
	struct visible_gpus gpus = { .count = have->count };

	memset(choice_out, 0, sizeof(*choice_out));
	choice_out->open = true;
	if (have->count < 2 && !wish->only) {
		/* With one there is nothing to choose; who wants more looks further. */
		if (!have->count || !wish->count || !visible_count(wish->count, &most) || most == 1 || most == UINT32_MAX)
			return 0;
		snprintf(why, why_size, "GLEAM_GPUS=%s: the server has one GPU", wish->count);
		return -ENODEV;
	}
	if (!have->count) {
		snprintf(choice_out->text, sizeof(choice_out->text), "%s", wish->only);
		return 0;
	}
	for (uint32_t i = 0; i < have->count; i++) {
		memcpy(gpus.gpus[i].uuid, have->gpus[i].uuid, sizeof(gpus.gpus[i].uuid));
		memcpy(gpus.gpus[i].uuid_v1, have->gpus[i].uuid, sizeof(gpus.gpus[i].uuid_v1));
		gpus.gpus[i].pci = have->gpus[i].pci;
	}
	if (visible_select(&gpus, wish->only, NULL, allowed, &allowed_count)) {
		snprintf(why, why_size, "none of the GPUs that this program may use is here any more");
		return -ENODEV;
	}
	if (wish->count && !strncmp(wish->count, VISIBLE_UPTO, strlen(VISIBLE_UPTO)) &&
	    visible_count(wish->count + strlen(VISIBLE_UPTO), &most)) {
		if (most > allowed_count)
			most = allowed_count;
	} else if (wish->count && !visible_count(wish->count, &most)) {
		snprintf(why, why_size, "GLEAM_GPUS=%.32s: neither a number from 1 to %d nor \"all\"", wish->count, VISIBLE_MAX);
		return -ENODEV;
	}
	if (wish->count && most != UINT32_MAX && most > allowed_count) {
		snprintf(why, why_size, "GLEAM_GPUS=%s: the server has %u GPUs for this program", wish->count, allowed_count);
		return -ENODEV;
	}
	if (wish->visible || wish->order) {
		struct visible_gpus seen = { .count = allowed_count };

		for (uint32_t i = 0; i < allowed_count; i++)
			seen.gpus[i] = gpus.gpus[allowed[i]];
		/* Wrong settings are the driver's to complain about, by the library and with its codes; so are slices of GPUs,
		 * which are not in our list. */
		if (visible_select(&seen, wish->visible, wish->order, chosen, &count)) {
			if (wish->only) {
				text_make(have, allowed, allowed_count, choice_out->text);
				for (uint32_t i = 0; i < allowed_count; i++)
					choice_out->mask |= 1u << allowed[i];
				choice_out->count = allowed_count;
			}
			return 0;
		}
		for (uint32_t i = 0; i < count; i++)
			chosen[i] = allowed[chosen[i]];
	} else {
		memcpy(chosen, allowed, sizeof(chosen));
		count = allowed_count;
	}
	/* The program's own list says how many; its first ones where GLEAM_GPUS is less. */
	if (wish->visible && !wish->count)
		most = UINT32_MAX;
	if (wish->count && most != UINT32_MAX && most > count) {
		snprintf(why, why_size, "GLEAM_GPUS=%s: CUDA_VISIBLE_DEVICES names only %u", wish->count, count);
		return -ENODEV;
	}
	if (wish->visible && count > most)
		count = most;
	else
		least_taken_keep(have, chosen, &count, most);
	for (uint32_t i = 0; i < count; i++)
		choice_out->mask |= 1u << chosen[i];
	choice_out->count = count;
	choice_out->open = false;
	text_make(have, chosen, count, choice_out->text);
	return 0;
}
