/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Techniques that a program can have switched off for its session, to measure what each is worth: GLEAM_OFF=async,spin. The
 * library says them among the settings of its OPEN; daemons and worker find them in mirror.off and session_header.off.
 */
#ifndef GLEAM_PROTO_OFF_H
#define GLEAM_PROTO_OFF_H

#include <stdint.h>
#include <string.h>

enum off {
	OFF_ASYNC = 1,	   /* each command is awaited, copies are read when they are made, queries ask */
	OFF_HANDLES = 2,   /* births and deaths of objects are awaited */
	OFF_GRANTS = 4,	   /* each allocation asks for its memory */
	OFF_VERDICTS = 8,  /* each load is judged anew, each look-up of a name asks */
	OFF_SNAPSHOT = 16, /* what is known of devices, functions and addresses is asked each time */
	OFF_COALESCE = 32, /* each command and each answer is a write of its own */
	OFF_SPIN = 64,	   /* who waits sleeps */
	OFF_LZ4 = 128,	   /* bytes travel as they are */
	OFF_ALL = 255,
	OFF_DIRECT = 256,  /* a program on its own machine's GPU goes through gleamd; not one of all: there's nothing to measure without it elsewhere */
	OFF_TRACED = 1 << 16, /* no technique: the program is traced, and wants to be told of its commands (span.h) */
};

#define OFF_WORDS	 "async, handles, grants, verdicts, snapshot, coalesce, spin, lz4, direct or all"
#define OFF_SETTING	 "GLEAM_OFF="
#define OFF_UNKNOWN_SIZE 32

/*
 * The bits of words with commas between them, up to the end of the text or line. @unknown_out (OFF_UNKNOWN_SIZE bytes, or
 * NULL) gets the first word that is none of them, cut, or "".
 */
static inline uint32_t off_read(const char *text, char *unknown_out)
{
	static const struct {
		char word[12];
		uint32_t bit;
	} words[] = {
		{ "async", OFF_ASYNC },	      { "handles", OFF_HANDLES },   { "grants", OFF_GRANTS },
		{ "verdicts", OFF_VERDICTS }, { "snapshot", OFF_SNAPSHOT }, { "coalesce", OFF_COALESCE },
		{ "spin", OFF_SPIN },	      { "lz4", OFF_LZ4 },	    { "all", OFF_ALL },
		{ "direct", OFF_DIRECT },
	};
	uint32_t off = 0;

	if (unknown_out)
		unknown_out[0] = '\0';
	while (*text && *text != '\n') {
		size_t size = strcspn(text, ", \n");
		uint32_t bit = 0;

		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (size == strlen(words[i].word) && memcmp(text, words[i].word, size) == 0)
				bit = words[i].bit;
		off |= bit;
		if (size && !bit && unknown_out && !*unknown_out) {
			size_t kept = size < OFF_UNKNOWN_SIZE ? size : OFF_UNKNOWN_SIZE - 1;

			memcpy(unknown_out, text, kept);
			unknown_out[kept] = '\0';
		}
		text += size;
		text += *text == ',' || *text == ' ';
	}
	return off;
}

#define OFF_TRACED_SETTING "GLEAM_TRACED=1"

/* The same of the line GLEAM_OFF=... among settings, and whether GLEAM_TRACED=1 is there; 0 without them. */
static inline uint32_t off_find(const char *settings)
{
	uint32_t off = 0;

	for (const char *line = settings; *line;) {
		size_t size = strcspn(line, "\n");

		if (strncmp(line, OFF_SETTING, sizeof(OFF_SETTING) - 1) == 0)
			off |= off_read(line + sizeof(OFF_SETTING) - 1, NULL);
		if (size == sizeof(OFF_TRACED_SETTING) - 1 && memcmp(line, OFF_TRACED_SETTING, size) == 0)
			off |= OFF_TRACED;
		line += size + (line[size] != 0);
	}
	return off;
}

#endif
