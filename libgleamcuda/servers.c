// SPDX-License-Identifier: Apache-2.0
/* Which servers a process has sessions with: one as a rule, several where it wants more GPUs. By cuInit; see servers.h. */
#include "libgleamcuda/servers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/visible.h"
#include "libgleamcuda/across.h"
#include "libgleamcuda/array.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/graph_exec.h"
#include "libgleamcuda/host.h"
#include "libgleamcuda/link.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/logs.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/peer.h"
#include "libgleamcuda/program.h"
#include "libgleamcuda/service.h"
#include "libgleamcuda/session_open.h"
#include "libgleamcuda/share.h"
#include "libgleamcuda/stream.h"
#include "libgleamcuda/texture.h"

#define PCI_DOMAINS 0x100 /* from one server's to the next one's: PCs have a few dozen domains at most */

/* Sessions that are being opened, not yet anybody's. */
struct list {
	struct session *sessions[SESSIONS_MAX];
	uint32_t count;
	uint32_t units; /* devices of all of them */
};

static void list_close(struct list *list)
{
	while (list->count)
		session_close(list->sessions[--list->count]);
	list->units = 0;
}

static int list_add(struct list *list, struct session_wish *wish, struct session_opened *opened_out, CUresult *result_out)
{
	struct session *s;
	int err;

	if (list->count == SESSIONS_MAX || list->units >= SNAPSHOT_DEVICES)
		return -E2BIG;
	err = session_open_one(wish, list->units, &s, opened_out, result_out);
	if (err)
		return err;
	list->sessions[list->count++] = s;
	list->units += s->snapshot.device_count;
	return 0;
}

/* Those that GLEAM_SERVER names: so many GPUs of each, or @want in all (0: as many as they have). */
static int named_open(struct list *list, const char *names, bool each, uint32_t want, CUresult *result_out)
{
	struct session_wish wish = { .chooses = true };
	struct session_opened opened;

	while (*names) {
		size_t length = strcspn(names, ",");
		char name[sizeof(opened.server)], gpus[32] = "all";
		int err;

		if (!length || length >= sizeof(name)) {
			gleam_log("GLEAM_SERVER has a name that no server has: \"%.*s\"", (int)length, names);
			return -EINVAL;
		}
		snprintf(name, sizeof(name), "%.*s", (int)length, names);
		names += length + (names[length] == ',');
		if (each)
			strcpy(gpus, "1");
		else if (want)
			snprintf(gpus, sizeof(gpus), VISIBLE_UPTO "%u", want - list->units);
		wish.server = name;
		wish.gpus = gpus;
		err = list_add(list, &wish, &opened, result_out);
		if (err)
			return err;
		if (want && list->units >= want)
			break;
	}
	return 0;
}

/* Any that answer: @want GPUs in all, 0: all that there are. */
static int any_open(struct list *list, uint32_t want, CUresult *result_out)
{
	struct session_wish wish = { .chooses = true };
	struct session_opened opened;
	size_t at = 0;
	int err;

	if (list->count)
		at = (size_t)sprintf(wish.not, "%s", list->sessions[0]->server);
	do {
		const char *name;
		char gpus[32] = "all";

		if (want)
			snprintf(gpus, sizeof(gpus), VISIBLE_UPTO "%u", want - list->units);
		wish.gpus = gpus;
		err = list_add(list, &wish, &opened, result_out);
		if (err)
			break;
		name = list->sessions[list->count - 1]->server;
		if (at + strlen(name) + 2 > sizeof(wish.not))
			break;
		at += (size_t)sprintf(wish.not + at, "%s%s", at ? "," : "", name);
	} while (opened.others && (!want || list->units < want));
	/* The last one was as good as none: what there is has to do. */
	return list->count ? 0 : err;
}

static uint64_t pci_of(const struct snapshot_device *d)
{
	return visible_pci(d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID], d->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
			   d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]);
}

/* Whether one of the devices before device @k of session @i is at the same place. */
static bool pci_is_taken(const struct list *list, uint32_t i, uint32_t k)
{
	uint64_t pci = pci_of(&list->sessions[i]->snapshot.devices[k]);

	for (uint32_t s = 0; s <= i; s++)
		for (uint32_t d = 0; d < (s == i ? k : list->sessions[s]->snapshot.device_count); d++)
			if (pci_of(&list->sessions[s]->snapshot.devices[d]) == pci)
				return true;
	return false;
}

/*
 * Two servers may have a GPU at the same place of their buses, and programs (NCCL) tell GPUs by it: those of a later server get a
 * domain that is free.
 */
static void list_pci(struct list *list)
{
	for (uint32_t i = 1; i < list->count; i++)
		for (uint32_t k = 0; k < list->sessions[i]->snapshot.device_count; k++) {
			struct snapshot_device *d = &list->sessions[i]->snapshot.devices[k];
			int32_t *a = d->attributes;

			if (!pci_is_taken(list, i, k))
				continue;
			do
				a[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] += PCI_DOMAINS;
			while (pci_is_taken(list, i, k));
			snprintf(d->pci, sizeof(d->pci), "%04x:%02x:%02x.0", (unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
				 (unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] & 0xff,
				 (unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] & 0xff);
		}
}

/* Sessions whose devices CUDA_VISIBLE_DEVICES leaves out are given back. */
static CUresult list_choose(struct list *list)
{
	CUresult result = devices_init(list->sessions, list->count);
	uint32_t kept = 0;

	if (result)
		return result;
	for (uint32_t i = 0; i < list->count; i++) {
		bool used = false;

		for (int d = 0; d < device_count(); d++)
			used |= device_at(d)->session == list->sessions[i];
		if (used)
			list->sessions[kept++] = list->sessions[i];
		else
			session_close(list->sessions[i]);
	}
	list->count = kept;
	return CUDA_SUCCESS;
}

/*
 * One GPU of one server unless the program wants more (GLEAM_GPUS), or names several servers. So many are first looked for at
 * one server, and only then at several.
 */
static int list_open(struct list *list, CUresult *result_out)
{
	const char *names = secure_getenv("GLEAM_SERVER"), *gpus = secure_getenv("GLEAM_GPUS");
	bool visible = secure_getenv("CUDA_VISIBLE_DEVICES") || secure_getenv("CUDA_DEVICE_ORDER");
	bool named = names && *names, several = named && strchr(names, ',');
	struct session_wish wish = { .chooses = false };
	struct session_opened opened;
	uint32_t want = 1;
	int err;

	/* What is neither a number nor "all" is told by whoever looks at it next. */
	if (gpus && *gpus && !visible_count(gpus, &want))
		want = 1;
	if (several) {
		/* Without a number each gives one. */
		err = named_open(list, names, !gpus || !*gpus, !gpus || !*gpus || want == UINT32_MAX || visible ? 0 : want,
				 result_out);
	} else {
		err = list_add(list, &wish, &opened, result_out);
		if (named || want == 1 || (!err && (want != UINT32_MAX || !opened.others)) ||
		    (err && opened.end != END_REFUSED && opened.end != END_NO_DEVICE))
			return err;
		/* All there are, and there are more; or nobody has so many. */
		if (err || visible)
			list_close(list);
		err = any_open(list, want == UINT32_MAX || visible ? 0 : want, result_out);
	}
	if (err)
		return err;
	list_pci(list);
	*result_out = list_choose(list);
	return *result_out ? -ENODEV : 0;
}

int servers_open(CUresult *result_out)
{
	struct list list = { .count = 0 };
	int err;

	off_start();
	err = list_open(&list, result_out);
	if (err)
		goto close_list;
	*result_out = CUDA_SUCCESS;
	for (uint32_t i = 0; i < list.count && !*result_out; i++)
		*result_out = memory_start(list.sessions[i]->first, list.sessions[i]->snapshot.device_count);
	if (!*result_out)
		*result_out = host_start();
	if (*result_out) {
		err = -ENOMEM;
		goto close_list;
	}
	context_on_close(capture_context_closed);
	context_on_close(graph_context_closed);
	context_on_close(across_context_closed);
	context_on_close(stream_context_closed);
	context_on_close(event_context_closed);
	context_on_close(texture_context_closed);
	context_on_close(array_context_closed);
	context_on_close(share_context_closed);
	context_on_close(memory_context_closed);
	context_on_close(peer_context_closed);
	logs_start();
	context_on_close(link_context_closed);
	context_on_close(programs_context_gone);
	/* Before their threads, which look at each other's. */
	for (uint32_t i = 0; i < list.count; i++) {
		session_show(list.sessions[i], i);
		if (list.count > 1)
			gleam_log("server %s: %u GPUs", list.sessions[i]->server, list.sessions[i]->snapshot.device_count);
	}
	for (uint32_t i = 0; i < list.count; i++) {
		err = service_start(list.sessions[i]);
		if (!err)
			continue;
		*result_out = CUDA_ERROR_OUT_OF_MEMORY;
		/* Others' threads have theirs by now: it stays, and is dead. */
		__atomic_store_n(&list.sessions[i]->dead, 1, __ATOMIC_RELAXED);
		return err;
	}
	return 0;

close_list:
	list_close(&list);
	return err;
}
