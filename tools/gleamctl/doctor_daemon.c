// SPDX-License-Identifier: Apache-2.0
/* gleamctl doctor: settings, key, daemon, servers, this machine's own GPUs. One thread; see doctor.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/key.h"
#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/doctor.h"
#include "tools/gleamctl/progress.h"
#include "tools/gleamctl/value.h"

#define WHY_SIZE	1200
#define CONNECT_WAIT_MS 6000 /* for links that are being made; gleamd gives up a silent address after 5 s */
#define LOOK_MS		100
#define RTT_SLOW_MS	5.0 /* eager PyTorch makes a trip each step: slower than this is felt */

void doctor_config(struct doctor *doctor)
{
	char why[WHY_SIZE];
	int err;

	conf_init(&doctor->conf);
	doctor->config = doctor->options->config ? doctor->options->config : CONF_SYSTEM_PATH;
	if (access(doctor->config, F_OK) < 0 && !doctor->options->config) {
		doctor_say(doctor, LEVEL_NOTE, "config", NULL, "%s is not there: gleamd uses defaults and its command line",
			   doctor->config);
		return;
	}
	err = conf_read(&doctor->conf, doctor->config, why, sizeof(why));
	if (err)
		doctor_say(doctor, LEVEL_FAIL, "config",
			   err == -EACCES ? "ask again as root" :
			   err == -ENOENT ? "name the file that gleamd reads" :
					    "correct that line (man gleam.conf); gleamd does not start with it", "%s", why);
	else
		doctor_say(doctor, LEVEL_OK, "config", NULL, "%s: %u servers%s%s", doctor->config, doctor->conf.server_count,
			   *doctor->conf.listen ? ", offers this machine's GPUs on " : "", doctor->conf.listen);
}

void doctor_daemon(struct doctor *doctor)
{
	const char *path = ask_socket(doctor->options->socket);
	char why[WHY_SIZE];

	doctor->status = ask_quietly(path, "status", NULL, why, sizeof(why));
	if (!doctor->status) {
		doctor_say(doctor, LEVEL_FAIL, "daemon",
			   access("/run/systemd/system", F_OK) == 0 ? "systemctl enable --now gleamd; journalctl -u gleamd says why it ended" :
								       "start gleamd; it says itself why it can't",
			   "%s", why);
		return;
	}
	if (strcmp(text_of(doctor->status, "version"), GLEAM_VERSION) != 0)
		doctor_say(doctor, LEVEL_WARN, "daemon", "restart gleamd, so that it and the library are of one version",
			   "gleamd at %s is %s, this gleamctl is %s", path, text_of(doctor->status, "version"), GLEAM_VERSION);
	else
		doctor_say(doctor, LEVEL_OK, "daemon", NULL, "gleamd %s, pid %lld, answers at %s", GLEAM_VERSION,
			   whole_of(doctor->status, "pid"), path);
}

void doctor_key(struct doctor *doctor)
{
	const char *path = doctor->conf.key_file;
	struct key *keys;
	char why[WHY_SIZE];
	size_t count;
	int err;

	if (!*path) {
		if (doctor->conf.server_count || *doctor->conf.listen)
			doctor_say(doctor, LEVEL_WARN, "key", "gleamctl pair, or gleamctl key new and [key] file = in the configuration",
				   "no key is configured: servers are used and offered on loopback alone");
		return;
	}
	if (geteuid() != 0 && access(path, R_OK) < 0 && errno == EACCES) {
		doctor_say(doctor, LEVEL_NOTE, "key", NULL, "%s is readable by its owner alone, as it should be", path);
		return;
	}
	keys = calloc(KEYS_MAX, sizeof(*keys));
	err = keys ? key_read(path, keys, KEYS_MAX, &count, why, sizeof(why)) : -ENOMEM;
	if (err == -ENOMEM)
		snprintf(why, sizeof(why), "out of memory");
	if (err)
		doctor_say(doctor, LEVEL_FAIL, "key",
			   err == -ENOENT ? "gleamctl pair gets it from a server; gleamctl key new makes one" :
					    "correct that; gleamd does not start with it",
			   "%s", why);
	else
		doctor_say(doctor, LEVEL_OK, "key", NULL, "%s: %zu tenants, the first is %s with id %s; it must be in the servers' files, too",
			   path, count, keys[0].tenant, keys[0].id);
	for (size_t i = 0; keys && i < KEYS_MAX; i++)
		key_wipe(&keys[i]);
	free(keys);
}

/* What to do about a reason that gleamd gives; it is text for people, so only its words are known. */
static const char *server_advice(const char *why)
{
	static const struct {
		const char *words;
		const char *advice;
	} known[] = {
		{ "Connection refused", "is gleamd running there, with [node] listen on that address and port?" },
		{ "timed out", "does a firewall drop that port? Is the machine up? Try: nc -z ADDRESS PORT" },
		{ "no answer", "does a firewall drop that port? Is the machine up? Try: nc -z ADDRESS PORT" },
		{ "No route", "the network does not lead there: ip route get ADDRESS" },
		{ "unreachable", "the network does not lead there: ip route get ADDRESS" },
		{ "resolve", "the name is not known: getent hosts NAME; or configure an address" },
		{ "not known", "the name is not known: getent hosts NAME; or configure an address" },
		{ "key", "both machines need the same key: compare the ids of gleamctl key show, or run gleamctl pair again" },
		{ "protocol", "both machines need the same version of Gleam: compare gleamctl version" },
		{ "version", "both machines need the same version of Gleam: compare gleamctl version" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcasestr(why, known[i].words))
			return known[i].advice;
	return "the log of gleamd on both machines says more";
}

static bool any_connecting(const json_t *servers)
{
	const json_t *server;
	size_t i;

	json_array_foreach(servers, i, server)
		if (strcmp(text_of(server, "state"), "connecting") == 0 || strcmp(text_of(server, "state"), "idle") == 0 ||
		    (strcmp(text_of(server, "state"), "ready") == 0 && !(number_of(server, "rtt_us") > 0)))
			return true;
	return false;
}

static void server_tell(struct doctor *doctor, const json_t *server)
{
	const char *name = text_of(server, "name"), *state = text_of(server, "state"), *why = text_of(server, "why");
	/* The best that was seen: a busy moment of one of the machines is not the network's. */
	double rtt_ms = number_of(server, has(server, "rtt_min_us") ? "rtt_min_us" : "rtt_us") / 1000;
	size_t gpus = json_array_size(json_object_get(server, "gpus"));

	if (strcmp(state, "ready") != 0) {
		doctor_say(doctor, LEVEL_FAIL, "server", server_advice(why), "%s (%s) is %s%s%s", name, text_of(server, "address"), state,
			   *why ? ": " : "", why);
		return;
	}
	if (gpus == 0)
		doctor_say(doctor, LEVEL_WARN, "server", "gleamctl doctor on that machine says why", "%s is ready and offers no GPU", name);
	else if (rtt_ms > RTT_SLOW_MS)
		doctor_say(doctor, LEVEL_WARN, "server", "a cable instead of a radio link, or a nearer server",
			   "%s is %.1f ms away: every answer that a program waits for costs that much", name, rtt_ms);
	else
		doctor_say(doctor, LEVEL_OK, "server", NULL, "%s (%s): %.3f ms, %s, %zu x %s", name, text_of(server, "address"), rtt_ms,
			   json_is_true(json_object_get(server, "tls")) ? "TLS" : "cleartext", gpus,
			   text_of(json_array_get(json_object_get(server, "gpus"), 0), "name"));
}

void doctor_servers(struct doctor *doctor)
{
	struct timespec pause = { .tv_nsec = LOOK_MS * 1000000L };
	json_t *answer, *servers;
	struct progress progress;
	const json_t *server;
	char why[WHY_SIZE];
	size_t i;

	if (!doctor->status)
		return;
	progress_begin(&progress, "waiting for servers");
	/* The question about the status has opened links to idle servers. */
	for (int waited = 0; any_connecting(json_object_get(doctor->status, "servers")) && waited < CONNECT_WAIT_MS; waited += LOOK_MS) {
		progress_set(&progress, waited, CONNECT_WAIT_MS, NULL);
		nanosleep(&pause, NULL);
		answer = ask_quietly(ask_socket(doctor->options->socket), "status", NULL, why, sizeof(why));
		if (!answer)
			break;
		json_decref(doctor->status);
		doctor->status = answer;
	}
	progress_end(&progress);
	servers = json_object_get(doctor->status, "servers");
	json_array_foreach(servers, i, server)
		server_tell(doctor, server);
	if (json_array_size(servers) == 0 && !json_object_get(doctor->status, "node"))
		doctor_say(doctor, LEVEL_FAIL, "server", "gleamctl pair ADDRESS joins this machine to a server",
			   "no servers are configured: programs here find no GPU");
}

void doctor_node(struct doctor *doctor)
{
	const json_t *node = json_object_get(doctor->status, "node");

	if (node) {
		size_t gpus = json_array_size(json_object_get(node, "gpus"));

		if (*text_of(node, "trouble"))
			doctor_say(doctor, LEVEL_FAIL, "node", "the log of gleamd says more; [node] driver names the GPU's own libcuda.so.1",
				   "workers don't start: %s", text_of(node, "trouble"));
		else if (gpus == 0)
			doctor_say(doctor, LEVEL_FAIL, "node", "does nvidia-smi list a GPU? [node] driver names its libcuda.so.1",
				   "this machine offers GPUs on %s and has none", text_of(node, "listen"));
		else
			doctor_say(doctor, LEVEL_OK, "node", NULL, "offers %zu x %s on %s, driver %s, %lld workers warm", gpus,
				   text_of(json_array_get(json_object_get(node, "gpus"), 0), "name"), text_of(node, "listen"),
				   text_of(node, "driver"), whole_of(node, "warm"));
	}
	if (*doctor->conf.listen && strcmp(doctor->conf.driver, "softgpu") != 0 && access(doctor->conf.driver, R_OK) < 0)
		doctor_say(doctor, LEVEL_FAIL, "node", "[node] driver = PATH of NVIDIA's libcuda.so.1, or softgpu", "the driver %s: %s",
			   doctor->conf.driver, strerror(errno));
}
