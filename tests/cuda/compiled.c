// SPDX-License-Identifier: Apache-2.0
/*
 * The cache of what NVRTC and nvJitLink compile, as they use it: a table of cuGetExportTable.
 *
 *	compiled                what is put is found by the same inputs, and by no others
 *	compiled put|get TEXT   keeps, or expects, what TEXT became (another process may have kept it)
 */
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda/prog.h"

struct table {
	size_t size;
	int (*open)(void **entry, int kind, const void *source, size_t size, const char *options, const char *host, const char *built,
		    int arch);
	int (*close)(void *entry);
	int (*get)(void *entry, uint64_t zero, void **data, uint32_t *size);
	int (*put)(void *entry, uint64_t zero, const void *data, uint32_t size);
	int (*unused)(void);
	int (*free)(void *data);
};

static const struct table *table;

static bool kept(int kind, const char *source, const char *options, const char *wanted)
{
	void *entry = NULL, *data = NULL;
	uint32_t size = 0;
	bool found;

	if (table->open(&entry, kind, source, strlen(source), options, "HOST64", "Jan  1 202600:00:00", 90))
		return false;
	found = table->get(entry, 0, &data, &size) == 0;
	table->close(entry);
	if (!found)
		return false;
	CHECK(size == strlen(wanted) && memcmp(data, wanted, size) == 0, "%u bytes of something else", size);
	table->free(data);
	return true;
}

static void keep(int kind, const char *source, const char *options, const char *result)
{
	void *entry = NULL;

	CHECK(table->open(&entry, kind, source, strlen(source), options, "HOST64", "Jan  1 202600:00:00", 90) == 0, "an entry");
	if (!entry)
		return;
	table->put(entry, 0, result, (uint32_t)strlen(result));
	table->close(entry);
}

int main(int argc, char **argv)
{
	static const CUuuid id = { { (char)0xda, (char)0x91, 0x51, (char)0xd3, 0x3a, (char)0xe6, (char)0xcc, 0x41, (char)0xa5, (char)0xc0,
				     0x4f, 0x26, (char)0xd5, 0x33, (char)0xe3, 0x28 } };
	const void *given = NULL;
	char source[64];
	struct timespec now;
	CUdevice device;

	prog_context(&device);
	if (cuGetExportTable(&given, &id)) {
		printf("this driver has no such cache\n");
		return prog_end();
	}
	table = given;
	CHECK(table->size >= sizeof(*table), "a table of %zu bytes", table->size);
	if (argc > 2) {
		if (argv[1][0] == 'p')
			keep(1, argv[2], " -arch=sm_90", "what became of it");
		else
			CHECK(kept(1, argv[2], " -arch=sm_90", "what became of it"), "'%s' is not kept", argv[2]);
		return prog_end();
	}
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(source, sizeof(source), "source %d %lld.%09ld", (int)getpid(), (long long)now.tv_sec, now.tv_nsec);
	CHECK(!kept(2, source, " -arch=compute_90", ""), "what nobody has compiled");
	keep(2, source, " -arch=compute_90", "PTX");
	CHECK(kept(2, source, " -arch=compute_90", "PTX"), "what was put is not kept");
	CHECK(kept(2, source, " -arch=compute_90", "PTX"), "a second time");
	CHECK(!kept(2, source, " -arch=compute_100", ""), "with other options");
	source[0] = 'S';
	CHECK(!kept(2, source, " -arch=compute_90", ""), "another source");
	return prog_end();
}
