// SPDX-License-Identifier: Apache-2.0
/* gleamctl doctor: the list of checks and how findings are told. One thread; see doctor.h. */
#include "tools/gleamctl/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gleamctl/ask.h"

#define TEXT_SIZE 1024

static const char *const level_names[] = { [LEVEL_OK] = "ok", [LEVEL_NOTE] = "note", [LEVEL_WARN] = "warn", [LEVEL_FAIL] = "FAIL" };

void doctor_say(struct doctor *doctor, enum level level, const char *check, const char *advice, const char *format, ...)
{
	char text[TEXT_SIZE];
	va_list args;
	json_t *finding;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* Reasons come from other machines. */
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	doctor->counts[level]++;
	finding = json_pack("{s:s, s:s, s:s%, s:s*}", "check", check, "level", level == LEVEL_FAIL ? "fail" : level_names[level],
			    "text", text, strlen(text), "advice", advice);
	/* A path that isn't UTF-8 can't be in JSON. */
	if (!finding)
		finding = json_pack("{s:s, s:s, s:s, s:s*}", "check", check, "level",
				    level == LEVEL_FAIL ? "fail" : level_names[level], "text", "(not UTF-8)", "advice", advice);
	json_array_append_new(doctor->findings, finding);
	if (doctor->options->json)
		return;
	printf("%-9s %-4s  %s\n", check, level_names[level], text);
	if (advice)
		printf("%15s-> %s\n", "", advice);
	/* What comes next may take a second. */
	fflush(stdout);
}

int doctor_command(const struct options *options)
{
	struct doctor doctor = { .options = options, .findings = json_array() };
	unsigned failures, warnings;
	int status;

	if (!doctor.findings)
		return failed("out of memory");
	doctor_config(&doctor);
	doctor_daemon(&doctor);
	doctor_library(&doctor);
	doctor_key(&doctor);
	doctor_servers(&doctor);
	doctor_node(&doctor);
	doctor_io_uring(&doctor);
	doctor_fuse(&doctor);
	doctor_limits(&doctor);
	doctor_kernel(&doctor);
	doctor_clock(&doctor);
	failures = doctor.counts[LEVEL_FAIL];
	warnings = doctor.counts[LEVEL_WARN];
	json_decref(doctor.status);
	if (options->json) {
		status = json_show(json_pack("{s:o, s:i, s:i}", "findings", doctor.findings, "failures", (int)failures, "warnings",
					     (int)warnings));
	} else {
		json_decref(doctor.findings);
		if (failures || warnings)
			printf("\n%u failed, %u to look at\n", failures, warnings);
		else
			printf("\nnothing wrong\n");
		status = output_end();
	}
	return status ? status : failures ? EXIT_FAILED : 0;
}
