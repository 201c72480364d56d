/* SPDX-License-Identifier: Apache-2.0 */
/* The network interfaces of this machine. Control thread; see netwatch.h. */
#include "broker/local/netwatch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <netlink/cache.h>
#include <netlink/netlink.h>
#include <netlink/route/link.h>
#include <netlink/socket.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"

#define LINKS_MAX      64 /* interfaces that are looked at; containers have hundreds that lead nowhere */
#define RATE_LEAST_NS  (NS_PER_S / 2)
#define PAYLOAD_SHARE  0.94 /* of a frame that is TCP payload */
#define ETHTOOL_MASKS  32   /* words of link modes that kernels have, with room */

struct watched {
	struct netwatch_link link;
	uint64_t tx, rx;
	uint64_t counted_ns;
};

struct netwatch {
	struct loop *loop;
	void (*changed)(void *owner);
	void *owner;
	struct nl_cache_mngr *manager;
	struct nl_cache *cache; /* the manager's */
	struct nl_sock *asker;	/* for counters */
	int ioctl_fd;
	uint64_t tag;
	bool polling;
	bool stopped;
	struct watched links[LINKS_MAX];
	unsigned link_count;
};

static void netwatch_arm(struct netwatch *watch);

/* ---- speed ---- */

/* The driver tells how many words of masks it has, and is asked again with them. 0: no speed. */
static double link_speed(const struct netwatch *watch, const char *name)
{
	union {
		struct ethtool_link_settings head; /* masks of as many words follow */
		uint32_t room[sizeof(struct ethtool_link_settings) / sizeof(uint32_t) + 3 * ETHTOOL_MASKS];
	} settings = { .head = { .cmd = ETHTOOL_GLINKSETTINGS } };
	struct ifreq request = { 0 };

	strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
	request.ifr_data = (void *)&settings;
	if (ioctl(watch->ioctl_fd, SIOCETHTOOL, &request) < 0 || settings.head.link_mode_masks_nwords >= 0 ||
	    settings.head.link_mode_masks_nwords < -ETHTOOL_MASKS)
		return 0;
	settings.head.link_mode_masks_nwords = (int8_t)-settings.head.link_mode_masks_nwords;
	settings.head.cmd = ETHTOOL_GLINKSETTINGS;
	if (ioctl(watch->ioctl_fd, SIOCETHTOOL, &request) < 0 || settings.head.speed == 0 ||
	    settings.head.speed == (uint32_t)SPEED_UNKNOWN)
		return 0;
	return settings.head.speed * 1e6 / 8 * PAYLOAD_SHARE;
}

/* ---- state ---- */

static void watched_take(struct nl_object *object, void *arg)
{
	struct netwatch *watch = arg;
	struct rtnl_link *from = (struct rtnl_link *)object;
	unsigned flags = rtnl_link_get_flags(from);
	struct watched *watched = NULL;
	uint64_t now = clock_ns(), tx, rx;

	for (unsigned i = 0; i < watch->link_count; i++)
		if (watch->links[i].link.index == rtnl_link_get_ifindex(from))
			watched = &watch->links[i];
	if (!watched && watch->link_count < LINKS_MAX) {
		watched = &watch->links[watch->link_count++];
		memset(watched, 0, sizeof(*watched));
		watched->link.index = rtnl_link_get_ifindex(from);
	}
	if (!watched)
		return;
	strncpy(watched->link.name, rtnl_link_get_name(from) ? rtnl_link_get_name(from) : "", sizeof(watched->link.name) - 1);
	/* An interface that has no notion of a carrier is of state unknown, and runs. */
	watched->link.running = (flags & IFF_UP) && (flags & IFF_RUNNING);
	watched->link.loopback = flags & IFF_LOOPBACK;
	tx = rtnl_link_get_stat(from, RTNL_LINK_TX_BYTES);
	rx = rtnl_link_get_stat(from, RTNL_LINK_RX_BYTES);
	if (watched->counted_ns && now - watched->counted_ns < RATE_LEAST_NS)
		return;
	if (watched->counted_ns && tx >= watched->tx && rx >= watched->rx) {
		double passed = (double)(now - watched->counted_ns) / (double)NS_PER_S;

		watched->link.tx_rate = (double)(tx - watched->tx) / passed;
		watched->link.rx_rate = (double)(rx - watched->rx) / passed;
	}
	watched->tx = tx;
	watched->rx = rx;
	watched->counted_ns = now;
}

static bool links_refresh(struct netwatch *watch)
{
	struct watched before[LINKS_MAX];
	unsigned count = watch->link_count;
	bool changed;

	memcpy(before, watch->links, sizeof(before));
	nl_cache_foreach(watch->cache, watched_take, watch);
	for (unsigned i = 0; i < watch->link_count; i++)
		watch->links[i].link.rate = watch->links[i].link.loopback ? 0 : link_speed(watch, watch->links[i].link.name);
	changed = count != watch->link_count;
	for (unsigned i = 0; i < count; i++) {
		const struct netwatch_link *was = &before[i].link, *is = &watch->links[i].link;

		if (was->running != is->running || was->rate < is->rate || was->rate > is->rate) {
			changed = true;
			log_debug("interface %s: %s, %.0f Mbit/s", is->name, is->running ? "running" : "down", is->rate * 8 / 1e6);
		}
	}
	return changed;
}

static void link_changed(struct nl_cache *cache, struct nl_object *object, int action, void *arg)
{
	struct netwatch *watch = arg;

	if (action == NL_ACT_DEL) {
		for (unsigned i = 0; i < watch->link_count; i++)
			if (watch->links[i].link.index == rtnl_link_get_ifindex((struct rtnl_link *)object))
				watch->links[i] = watch->links[--watch->link_count];
	}
}

static void netwatch_ready(void *arg, int res, uint32_t flags)
{
	struct netwatch *watch = arg;

	watch->polling = false;
	if (watch->stopped)
		return;
	if (res >= 0) {
		nl_cache_mngr_data_ready(watch->manager);
		if (links_refresh(watch))
			watch->changed(watch->owner);
	}
	netwatch_arm(watch);
}

static void netwatch_arm(struct netwatch *watch)
{
	struct io_uring_sqe *sqe = loop_sqe(watch->loop);

	io_uring_prep_poll_add(sqe, nl_cache_mngr_get_fd(watch->manager), POLLIN);
	watch->tag = loop_tag(watch->loop, sqe, netwatch_ready, watch);
	watch->polling = true;
}

void netwatch_look(struct netwatch *watch)
{
	if (!watch || !watch->cache || watch->stopped)
		return;
	/* Counters come with a dump alone. */
	if (watch->asker)
		nl_cache_refill(watch->asker, watch->cache);
	if (links_refresh(watch))
		watch->changed(watch->owner);
}

/* ---- which ---- */

static bool address_same(const struct sockaddr *a, const struct sockaddr_storage *b)
{
	if (!a || a->sa_family != b->ss_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 &&
	       memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
		      &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

bool netwatch_of_socket(const struct netwatch *watch, int fd, struct netwatch_link *link_out)
{
	struct sockaddr_storage local = { 0 };
	socklen_t size = sizeof(local);
	struct ifaddrs *all = NULL;
	bool found = false;

	if (!watch || fd < 0 || getsockname(fd, (struct sockaddr *)&local, &size) < 0 || getifaddrs(&all) < 0)
		return false;
	for (struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
		if (!address_same(at->ifa_addr, &local))
			continue;
		for (unsigned i = 0; i < watch->link_count && !found; i++) {
			if (strcmp(watch->links[i].link.name, at->ifa_name) != 0)
				continue;
			*link_out = watch->links[i].link;
			found = true;
		}
	}
	freeifaddrs(all);
	return found;
}

/* ---- life ---- */

struct netwatch *netwatch_new(struct loop *loop, void (*changed)(void *owner), void *owner)
{
	struct netwatch *watch = calloc(1, sizeof(*watch));
	int err;

	if (!watch)
		return NULL;
	watch->loop = loop;
	watch->changed = changed;
	watch->owner = owner;
	watch->ioctl_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	err = watch->ioctl_fd < 0 ? -NLE_FAILURE : nl_cache_mngr_alloc(NULL, NETLINK_ROUTE, 0, &watch->manager);
	if (!err)
		err = nl_cache_mngr_add(watch->manager, "route/link", link_changed, watch, &watch->cache);
	if (err) {
		log_info("interfaces are not watched: %s", nl_geterror(err));
		nl_cache_mngr_free(watch->manager);
		watch->manager = NULL;
		watch->cache = NULL;
		fd_close(&watch->ioctl_fd);
		watch->stopped = true;
		return watch;
	}
	watch->asker = nl_socket_alloc();
	if (watch->asker && nl_connect(watch->asker, NETLINK_ROUTE)) {
		nl_socket_free(watch->asker);
		watch->asker = NULL;
	}
	links_refresh(watch);
	netwatch_arm(watch);
	return watch;
}

void netwatch_stop(struct netwatch *watch)
{
	if (!watch)
		return;
	watch->stopped = true;
	if (watch->polling)
		loop_cancel(watch->loop, watch->tag);
}

bool netwatch_is_stopped(const struct netwatch *watch)
{
	return !watch || (watch->stopped && !watch->polling);
}

void netwatch_free(struct netwatch *watch)
{
	if (!watch)
		return;
	nl_socket_free(watch->asker);
	nl_cache_mngr_free(watch->manager);
	if (watch->ioctl_fd >= 0)
		close(watch->ioctl_fd);
	free(watch);
}
