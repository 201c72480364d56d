/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file that GLEAM_TRACE=file asks for: a header of one chunk, then chunks of one thread's records each. A program that
 * calls longer than the file may be large writes over its oldest chunks. Numbers in the order of the machine that wrote it;
 * whoever reads it trusts nothing in it.
 */
#ifndef GLEAM_PROTO_TRACE_H
#define GLEAM_PROTO_TRACE_H

#include <assert.h>
#include <stdint.h>

#define TRACE_MAGIC	   0x31656361724d4c47ull /* "GLMrace1" */
#define TRACE_CHUNK_MAGIC  0x6b6e6863u	 /* "chnk" */
#define TRACE_CHUNK	   (64u << 10)
#define TRACE_CHUNKS	   4096u /* 256 MiB, some three million calls; GLEAM_TRACE_MIB says another number */
#define TRACE_ARGS_MAX	   24u	 /* the longest prototype has fewer */
#define TRACE_STRING_MAX   120u	 /* of a text argument; what is longer is cut */

struct trace_file {
	uint64_t magic;
	uint32_t chunk;	  /* TRACE_CHUNK */
	uint32_t api_count; /* functions are numbers: reader and writer know the same ones, as names_hash says */
	uint64_t names_hash;
	uint32_t pid;
	uint32_t reserved;
	uint64_t started_ns;	/* CLOCK_MONOTONIC, as all times */
	uint64_t started_real_ns; /* CLOCK_REALTIME at the same moment */
	char program[200];
};
static_assert(sizeof(struct trace_file) == 248, "trace_file is fixed");

struct trace_chunk {
	uint32_t magic;
	uint32_t used; /* bytes behind this header */
	uint64_t serial; /* counts up over all chunks of the file: the order in which they were begun */
	uint32_t thread; /* the system's number of the thread; 0: records that came from elsewhere */
	uint32_t lost;	 /* records that found no room before this chunk */
	uint64_t reserved;
};
static_assert(sizeof(struct trace_chunk) == 32, "trace_chunk is fixed");

enum trace_kind {
	TRACE_CALL = 1,
	TRACE_SPAN = 2, /* trace_span: something of broker, node or worker */
};

/* Then args numbers of 8 bytes, then for each text among them a byte of length and its bytes; padded to 8. */
struct trace_call {
	uint16_t size; /* of the record, padding included */
	uint8_t kind;
	uint8_t args;
	uint16_t api;
	uint16_t trips; /* round trips in it */
	int32_t result;
	uint32_t waited_for_it; /* 1: it returned when seq was answered */
	uint64_t seq; /* of the newest command that it sent; 0: none */
	uint64_t start_ns;
	uint64_t end_ns;
};
static_assert(sizeof(struct trace_call) == 40, "trace_call is fixed");

/* Of a command, somewhere behind the library; times in the clock of that machine. */
struct trace_span {
	uint16_t size;
	uint8_t kind;
	uint8_t who; /* enum span_who, broker/proto/span.h */
	uint16_t op;
	uint16_t reserved;
	uint32_t word;
	uint32_t reserved_too;
	uint64_t seq;
	uint64_t start_ns;
	uint64_t end_ns;
};
static_assert(sizeof(struct trace_span) == 40, "trace_span is fixed");

#endif
