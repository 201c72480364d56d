/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node tells its brokers about its load: LINK_REPORT. Written and read field by field.
 *
 *	u32 version, u32 sessions, u32 sessions_max, u32 warm, u32 busy_milli, u32 busy_now_milli, u32 busy_yours_milli,
 *	u32 draining, u64 others_rate, str driver,
 *	u32 gpus, then for each str name, u8 uuid[16], u64 memory, u64 memory_free, u32 utilisation, u32 clients,
 *	u64 speed, u64 pci, u32 values, then each u32,
 *	u32 seats, then for each u32 session, u64 busy_us, u64 gpu_us, u32 latency_us, u32 queued, u32 gpus,
 *	str driver_version
 */
#ifndef GLEAM_PROTO_STATS_H
#define GLEAM_PROTO_STATS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "broker/lib/codec.h"

#define REPORT_VERSION	 4
#define REPORT_GPUS_MAX	 16
#define REPORT_NAME_SIZE 128
#define REPORT_SEATS_MAX 256 /* of one broker that are told of; of more the first ones */
#define REPORT_SIZE_MAX	 (512u + REPORT_GPUS_MAX * (REPORT_NAME_SIZE + 96u + REPORT_VALUES_MAX * 4u) + REPORT_SEATS_MAX * 40u)
#define REPORT_SPEED_ONE 1000000000ull /* speed of the reference GPU, docs/scheduler.md */
#define REPORT_MS_MIN	 100u /* nobody needs it more often */
#define REPORT_VALUES_MAX 64u /* room for later ones */
#define REPORT_UNKNOWN	 UINT64_MAX /* nobody has measured it */
#define REPORT_UNKNOWN32 UINT32_MAX

/* What the node's NVML says of a GPU beside its memory, once a second. Later ones come behind these. */
enum report_value {
	GPU_TEMPERATURE, /* degrees Celsius, as are the thresholds */
	GPU_TEMPERATURE_SHUTDOWN,
	GPU_TEMPERATURE_SLOWDOWN,
	GPU_POWER,	 /* milliwatts, as all of power */
	GPU_POWER_LIMIT, /* that holds now */
	GPU_POWER_LIMIT_SET,
	GPU_POWER_LIMIT_DEFAULT,
	GPU_POWER_LIMIT_MIN,
	GPU_POWER_LIMIT_MAX,
	GPU_CLOCK_GRAPHICS, /* MHz, as all clocks: in the order of nvmlClockType_t */
	GPU_CLOCK_SM,
	GPU_CLOCK_MEMORY,
	GPU_CLOCK_VIDEO,
	GPU_CLOCK_GRAPHICS_MAX,
	GPU_CLOCK_SM_MAX,
	GPU_CLOCK_MEMORY_MAX,
	GPU_CLOCK_VIDEO_MAX,
	GPU_CLOCK_REASONS, /* the lower half */
	GPU_UTILISATION_MEMORY, /* percent, as all of utilisation */
	GPU_UTILISATION_ENCODER,
	GPU_UTILISATION_DECODER,
	GPU_FAN, /* percent */
	GPU_PSTATE,
	GPU_PCIE_GENERATION,
	GPU_PCIE_GENERATION_MAX,
	GPU_PCIE_WIDTH,
	GPU_PCIE_WIDTH_MAX,
	GPU_PCI_ID, /* device and vendor, as NVML joins them */
	GPU_PCI_SUBSYSTEM,
	GPU_ECC,
	GPU_PERSISTENCE,
	GPU_COMPUTE_MODE,
	GPU_CORES,
	GPU_BUS_WIDTH,
	GPU_ARCHITECTURE,
	GPU_BRAND,
	GPU_COMPUTE_MAJOR,
	GPU_COMPUTE_MINOR,
	GPU_BAR1_MIB,
	GPU_BAR1_USED_MIB,
	GPU_RESERVED_MIB, /* memory that the system keeps */
	GPU_CUDA_VERSION, /* of the driver: 13000 */
	REPORT_VALUES
};

struct report_gpu {
	char name[REPORT_NAME_SIZE];
	uint8_t uuid[16];
	uint64_t memory;      /* bytes */
	uint64_t memory_free; /* or REPORT_UNKNOWN */
	uint32_t utilisation; /* percent of time with a kernel running, by NVML, or REPORT_UNKNOWN32 */
	uint32_t clients;     /* that may use it */
	uint64_t speed;	      /* measured once, in parts of REPORT_SPEED_ONE; 0: not (yet) */
	uint64_t pci;	      /* visible_pci() */
	uint32_t values[REPORT_VALUES]; /* or REPORT_UNKNOWN32 */
};

/* A client of the broker that is told; totals since it was attached. */
struct report_seat {
	uint32_t session;
	uint64_t busy_us;    /* with unfinished work */
	uint64_t gpu_us;     /* the same, shared out among all clients that had work at the time */
	uint32_t latency_us; /* from launch to completion, the newest counting most; 0: none yet */
	uint32_t queued;     /* bytes of commands that its worker hasn't taken */
	uint32_t gpus;	     /* bit for each that it has */
};

struct report {
	uint32_t sessions; /* clients now */
	uint32_t sessions_max;
	uint32_t warm;	     /* workers that are ready and unused */
	uint32_t busy_milli; /* clients with unfinished work, mean over 5 s, in thousandths */
	uint32_t busy_now_milli;   /* the same over the last second */
	uint32_t busy_yours_milli; /* of them those of the broker that is told */
	bool draining;		   /* takes no new clients */
	uint64_t others_rate;	   /* bytes a second, both ways, over other brokers' links */
	char driver[REPORT_NAME_SIZE]; /* path */
	uint32_t gpu_count;
	struct report_gpu gpus[REPORT_GPUS_MAX];
	uint32_t seat_count;
	struct report_seat seats[REPORT_SEATS_MAX];
	char driver_version[32]; /* as NVML writes it; "": unknown */
};
static_assert(REPORT_VALUES <= REPORT_VALUES_MAX, "raise it, and the version");

static inline void report_put(struct writer *w, const struct report *report)
{
	put_u32(w, REPORT_VERSION);
	put_u32(w, report->sessions);
	put_u32(w, report->sessions_max);
	put_u32(w, report->warm);
	put_u32(w, report->busy_milli);
	put_u32(w, report->busy_now_milli);
	put_u32(w, report->busy_yours_milli);
	put_u32(w, report->draining);
	put_u64(w, report->others_rate);
	put_str(w, report->driver);
	put_u32(w, report->gpu_count);
	for (uint32_t i = 0; i < report->gpu_count && i < REPORT_GPUS_MAX; i++) {
		const struct report_gpu *gpu = &report->gpus[i];

		put_str(w, gpu->name);
		put_block(w, gpu->uuid, sizeof(gpu->uuid));
		put_u64(w, gpu->memory);
		put_u64(w, gpu->memory_free);
		put_u32(w, gpu->utilisation);
		put_u32(w, gpu->clients);
		put_u64(w, gpu->speed);
		put_u64(w, gpu->pci);
		put_u32(w, REPORT_VALUES);
		for (uint32_t v = 0; v < REPORT_VALUES; v++)
			put_u32(w, gpu->values[v]);
	}
	put_u32(w, report->seat_count);
	for (uint32_t i = 0; i < report->seat_count && i < REPORT_SEATS_MAX; i++) {
		const struct report_seat *seat = &report->seats[i];

		put_u32(w, seat->session);
		put_u64(w, seat->busy_us);
		put_u64(w, seat->gpu_us);
		put_u32(w, seat->latency_us);
		put_u32(w, seat->queued);
		put_u32(w, seat->gpus);
	}
	put_str(w, report->driver_version);
}

static inline void report_values_get(struct reader *r, struct report_gpu *gpu)
{
	uint32_t count = get_u32(r);

	/* A node may know fewer, or more. */
	for (uint32_t v = 0; v < REPORT_VALUES; v++)
		gpu->values[v] = REPORT_UNKNOWN32;
	if (count > REPORT_VALUES_MAX)
		r->fault = true;
	for (uint32_t v = 0; v < count && !r->fault; v++) {
		uint32_t value = get_u32(r);

		if (v < REPORT_VALUES)
			gpu->values[v] = value;
	}
}

/* False for another version or a wrong one; bytes behind it are for later versions. */
static inline bool report_get(struct reader *r, struct report *report_out)
{
	struct report report = { 0 };

	if (get_u32(r) != REPORT_VERSION)
		return false;
	report.sessions = get_u32(r);
	report.sessions_max = get_u32(r);
	report.warm = get_u32(r);
	report.busy_milli = get_u32(r);
	report.busy_now_milli = get_u32(r);
	report.busy_yours_milli = get_u32(r);
	report.draining = get_u32(r) != 0;
	report.others_rate = get_u64(r);
	snprintf(report.driver, sizeof(report.driver), "%s", get_str(r, REPORT_NAME_SIZE - 1));
	report.gpu_count = get_u32(r);
	if (report.gpu_count > REPORT_GPUS_MAX)
		return false;
	for (uint32_t i = 0; i < report.gpu_count && !r->fault; i++) {
		struct report_gpu *gpu = &report.gpus[i];

		snprintf(gpu->name, sizeof(gpu->name), "%s", get_str(r, REPORT_NAME_SIZE - 1));
		get_block(r, gpu->uuid, sizeof(gpu->uuid));
		gpu->memory = get_u64(r);
		gpu->memory_free = get_u64(r);
		gpu->utilisation = get_u32(r);
		gpu->clients = get_u32(r);
		gpu->speed = get_u64(r);
		gpu->pci = get_u64(r);
		report_values_get(r, gpu);
	}
	report.seat_count = get_u32(r);
	if (report.seat_count > REPORT_SEATS_MAX)
		return false;
	for (uint32_t i = 0; i < report.seat_count && !r->fault; i++) {
		struct report_seat *seat = &report.seats[i];

		seat->session = get_u32(r);
		seat->busy_us = get_u64(r);
		seat->gpu_us = get_u64(r);
		seat->latency_us = get_u32(r);
		seat->queued = get_u32(r);
		seat->gpus = get_u32(r);
	}
	snprintf(report.driver_version, sizeof(report.driver_version), "%s", get_str(r, sizeof(report.driver_version) - 1));
	if (r->fault)
		return false;
	*report_out = report;
	return true;
}

/* What a node tells a link about its tenant's part of the weight cache: LINK_CACHE_STATS, u64 each. */
struct cache_stats {
	uint64_t bytes;	    /* held */
	uint64_t entries;
	uint64_t memory;    /* of bytes: in memory */
	uint64_t disk;	    /* of bytes: on disk */
	uint64_t hits;	    /* pieces that came as references */
	uint64_t misses;    /* pieces whose bytes came, and were kept */
	uint64_t saved;	    /* bytes that needn't travel */
	uint64_t evictions; /* chunks that went for room */
	uint64_t damaged;   /* chunks that were found damaged on disk */
	uint64_t pressed;   /* 1: the node has no core to spare for names */
};
#define CACHE_STATS_COUNT 10u
static_assert(sizeof(struct cache_stats) == CACHE_STATS_COUNT * 8, "cache_stats is a row of u64");

#endif
