/* SPDX-License-Identifier: Apache-2.0 */
/* One end of the emulated LAN; see lanem_net.h. */
#include "tests/lab/lanem_net.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/lib/fdpass.h"

/* A burst of full-sized packets of a fast sender; the default of 500 is lost in one wake-up of ours. */
#define TXQUEUELEN 2000
/* What we write has been paced already: never push back. */
#define SNDBUF		    (1 << 30)
#define LINK_MODE_WORDS_MAX 127

/* --- netlink: one request, one answer ------------------------------------------------------------ */

struct request {
	struct nlmsghdr head;
	union {
		struct ifinfomsg link;
		struct ifaddrmsg addr;
	};
	char attrs[256];
};

static void request_attr(struct request *request, uint16_t type, const void *data, uint16_t size)
{
	struct rtattr *attr = (void *)((char *)request + NLMSG_ALIGN(request->head.nlmsg_len));

	attr->rta_type = type;
	attr->rta_len = RTA_LENGTH(size);
	memcpy(RTA_DATA(attr), data, size);
	request->head.nlmsg_len = NLMSG_ALIGN(request->head.nlmsg_len) + RTA_ALIGN(attr->rta_len);
}

/* Sends and waits for the acknowledgement, or for the one message asked for, which is left in @answer. */
static int request_do(int fd, struct request *request, void *answer, size_t answer_size)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	union {
		struct nlmsghdr head;
		char bytes[8192];
	} reply;
	ssize_t length;

	request->head.nlmsg_seq++;
	if (sendto(fd, request, request->head.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	length = recv(fd, &reply, sizeof(reply), 0);
	if (length < 0)
		return -errno;
	if (!NLMSG_OK(&reply.head, (size_t)length))
		return -EBADMSG;
	if (reply.head.nlmsg_type == NLMSG_ERROR)
		return ((struct nlmsgerr *)NLMSG_DATA(&reply.head))->error;
	if (!answer || (size_t)length > answer_size)
		return -EBADMSG;
	memcpy(answer, &reply, length);
	return 0;
}

int net_netlink_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	return fd < 0 ? -errno : fd;
}

static int addr_add(int fd, int family, const char *text, const char *peer, uint8_t prefix, int index)
{
	struct request request = {
		.head = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifaddrmsg)),
			  .nlmsg_type = RTM_NEWADDR,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL },
	};
	unsigned char addr[16];
	uint16_t size = family == AF_INET ? 4 : 16;

	request.addr.ifa_family = family;
	request.addr.ifa_prefixlen = prefix;
	request.addr.ifa_index = index;
	/* Nobody else can have it, and a test can't wait for a second until the kernel believes that. */
	request.addr.ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0;
	if (inet_pton(family, text, addr) != 1)
		return -EINVAL;
	request_attr(&request, IFA_LOCAL, addr, size);
	if (peer && inet_pton(family, peer, addr) != 1)
		return -EINVAL;
	request_attr(&request, IFA_ADDRESS, addr, size);
	return request_do(fd, &request, NULL, 0);
}

static int link_set(int fd, int index, uint32_t mtu, uint32_t txqueuelen)
{
	struct request request = {
		.head = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
			  .nlmsg_type = RTM_NEWLINK,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
	};

	request.link.ifi_family = AF_UNSPEC;
	request.link.ifi_index = index;
	request.link.ifi_flags = IFF_UP;
	request.link.ifi_change = IFF_UP;
	if (mtu)
		request_attr(&request, IFLA_MTU, &mtu, sizeof(mtu));
	if (txqueuelen)
		request_attr(&request, IFLA_TXQLEN, &txqueuelen, sizeof(txqueuelen));
	return request_do(fd, &request, NULL, 0);
}

int net_counters_read(int netlink_fd, struct net_counters *counters_out)
{
	struct request request = {
		.head = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
			  .nlmsg_type = RTM_GETLINK,
			  .nlmsg_flags = NLM_F_REQUEST },
	};
	union {
		struct nlmsghdr head;
		char bytes[8192];
	} answer;
	struct rtattr *attr;
	int left, err;

	request.link.ifi_family = AF_UNSPEC;
	request_attr(&request, IFLA_IFNAME, NET_DEVICE, sizeof(NET_DEVICE));
	err = request_do(netlink_fd, &request, &answer, sizeof(answer));
	if (err)
		return err;
	left = IFLA_PAYLOAD(&answer.head);
	for (attr = IFLA_RTA(NLMSG_DATA(&answer.head)); RTA_OK(attr, left); attr = RTA_NEXT(attr, left)) {
		struct rtnl_link_stats64 stats = { 0 };

		if (attr->rta_type != IFLA_STATS64)
			continue;
		memcpy(&stats, RTA_DATA(attr),
		       RTA_PAYLOAD(attr) < sizeof(stats) ? RTA_PAYLOAD(attr) : sizeof(stats));
		*counters_out = (struct net_counters){
			.rx_packets = stats.rx_packets,
			.tx_packets = stats.tx_packets,
			.rx_bytes = stats.rx_bytes,
			.tx_bytes = stats.tx_bytes,
			.rx_dropped = stats.rx_dropped,
			.tx_dropped = stats.tx_dropped,
		};
		return 0;
	}
	return -ENODATA;
}

/* --- the interface --------------------------------------------------------------------------------- */

static void device_name(struct ifreq *ifr)
{
	memset(ifr, 0, sizeof(*ifr));
	memcpy(ifr->ifr_name, NET_DEVICE, sizeof(NET_DEVICE));
}

int net_end_offload(const struct net_end *end, bool on)
{
	unsigned long flags = on ? TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN : 0;

	return ioctl(end->tun_fd, TUNSETOFFLOAD, flags) < 0 ? -errno : 0;
}

int net_end_link(const struct net_end *end, bool up)
{
	struct ifreq ifr;

	device_name(&ifr);
	if (ioctl(end->inet_fd, SIOCGIFFLAGS, &ifr) < 0)
		return -errno;
	ifr.ifr_flags = up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP;
	return ioctl(end->inet_fd, SIOCSIFFLAGS, &ifr) < 0 ? -errno : 0;
}

int net_end_carrier(const struct net_end *end, bool on)
{
	int value = on;

	return ioctl(end->tun_fd, TUNSETCARRIER, &value) < 0 ? -errno : 0;
}

int net_end_speed(const struct net_end *end, uint32_t mbit_per_s)
{
	union {
		struct ethtool_link_settings settings;
		/* with three masks behind it: supported, advertised, of the peer */
		char room[sizeof(struct ethtool_link_settings) + 3 * LINK_MODE_WORDS_MAX * sizeof(uint32_t)];
	} request;
	struct ifreq ifr;

	device_name(&ifr);
	ifr.ifr_data = (void *)&request;
	memset(&request, 0, sizeof(request));
	/* Asked with no room for the masks, the kernel tells their size as a negative number. */
	request.settings.cmd = ETHTOOL_GLINKSETTINGS;
	if (ioctl(end->inet_fd, SIOCETHTOOL, &ifr) < 0)
		return -errno;
	if (request.settings.link_mode_masks_nwords >= 0)
		return -EPROTO;
	request.settings.link_mode_masks_nwords = -request.settings.link_mode_masks_nwords;
	request.settings.cmd = ETHTOOL_GLINKSETTINGS;
	if (ioctl(end->inet_fd, SIOCETHTOOL, &ifr) < 0)
		return -errno;
	request.settings.cmd = ETHTOOL_SLINKSETTINGS;
	request.settings.speed = mbit_per_s;
	request.settings.duplex = DUPLEX_FULL;
	return ioctl(end->inet_fd, SIOCETHTOOL, &ifr) < 0 ? -errno : 0;
}

static int tun_open(struct net_end *end, bool offload)
{
	int vnet_size = NET_VNET_SIZE, sndbuf = SNDBUF, err;
	struct ifreq ifr;

	end->tun_fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (end->tun_fd < 0)
		return -errno;
	device_name(&ifr);
	ifr.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
	if (ioctl(end->tun_fd, TUNSETIFF, &ifr) < 0 || ioctl(end->tun_fd, TUNSETVNETHDRSZ, &vnet_size) < 0 ||
	    ioctl(end->tun_fd, TUNSETSNDBUF, &sndbuf) < 0)
		err = -errno;
	else
		err = net_end_offload(end, offload);
	return err;
}

/* /proc/sys/net shows the namespace of who opens it. Absence of a setting is no failure. */
static int sysctl_write(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		err = -errno;
	close(fd);
	return err;
}

/* Inside the new namespace. */
static int furnish(struct net_end *end, const struct net_conf *conf, const char **step_out)
{
	int index, err;

	*step_out = "open a socket in the namespace";
	end->inet_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (end->inet_fd < 0)
		return -errno;
	end->netlink_fd = net_netlink_open();
	if (end->netlink_fd < 0)
		return end->netlink_fd;

	*step_out = "set the loopback interface up";
	err = link_set(end->netlink_fd, if_nametoindex("lo"), 0, 0);
	if (err)
		return err;

	*step_out = "make an interface by /dev/net/tun";
	err = tun_open(end, conf->offload);
	if (err)
		return err;

	*step_out = "set the interface up";
	index = if_nametoindex(NET_DEVICE);
	/* Nothing may send on its own, neither router solicitations nor an address made up by the kernel. */
	sysctl_write("/proc/sys/net/ipv6/conf/" NET_DEVICE "/addr_gen_mode", "1");
	sysctl_write("/proc/sys/net/ipv6/conf/" NET_DEVICE "/accept_ra", "0");
	err = link_set(end->netlink_fd, index, conf->mtu, TXQUEUELEN);
	if (err)
		return err;

	*step_out = "set the IPv4 address";
	err = addr_add(end->netlink_fd, AF_INET, conf->addr, NULL, NET_PREFIX, index);
	if (err)
		return err;
	/* A kernel without IPv6 is no reason to have no lab. */
	addr_add(end->netlink_fd, AF_INET6, conf->addr6, NULL, NET_PREFIX6, index);

	if (conf->congestion) {
		*step_out = "choose the congestion control";
		err = sysctl_write("/proc/sys/net/ipv4/tcp_congestion_control", conf->congestion);
	}
	return err;
}

/* What the helper process tells; its descriptors come along, in the order of struct net_end. */
struct furnished {
	int err;
	const char *step; /* a literal: it has the same address in parent and child */
};

#define END_FD_COUNT 4
static_assert(sizeof(struct net_end) == END_FD_COUNT * sizeof(int), "struct net_end is its descriptors");

static void send_end(int fd, const struct furnished *furnished, const struct net_end *end)
{
	if (fds_send(fd, furnished, sizeof(*furnished), (const int *)(const void *)end, furnished->err ? 0 : END_FD_COUNT, 0))
		_exit(1);
}

static int receive_end(int fd, struct furnished *furnished, struct net_end *end)
{
	int fds[END_FD_COUNT];
	ssize_t length = fds_recv(fd, furnished, sizeof(*furnished), fds, END_FD_COUNT, 0);

	if (length < 0)
		return (int)length;
	if (length != sizeof(*furnished))
		return -ECHILD;
	if (furnished->err)
		return furnished->err;
	if (fds[END_FD_COUNT - 1] < 0)
		return -ECHILD;
	memcpy(end, fds, sizeof(*end));
	return 0;
}

static void helper(int fd, struct net_end *end, const struct net_conf *conf)
{
	struct furnished furnished = { .step = "make a network namespace" };

	if (unshare(CLONE_NEWNET) < 0) {
		furnished.err = -errno;
	} else {
		furnished.step = "open /proc/self/ns/net";
		end->namespace_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		furnished.err = end->namespace_fd < 0 ? -errno : furnish(end, conf, &furnished.step);
	}
	send_end(fd, &furnished, end);
	_exit(0);
}

/*
 * In a process of its own, which sends back the descriptors: an ordinary user can make a namespace, but
 * not come back into the one it was in.
 */
int net_end_open(struct net_end *end, const struct net_conf *conf, const char **step_out)
{
	struct furnished furnished = { .step = "hear from the process that makes a namespace" };
	int pair[2], err;
	pid_t pid;

	*end = (struct net_end){ -1, -1, -1, -1 };
	*step_out = "start a process that makes a namespace";
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		err = -errno;
		close(pair[0]);
		close(pair[1]);
		return err;
	}
	if (pid == 0) {
		close(pair[0]);
		helper(pair[1], end, conf);
	}
	close(pair[1]);
	err = receive_end(pair[0], &furnished, end);
	*step_out = furnished.step;
	close(pair[0]);
	waitpid(pid, NULL, 0);
	return err;
}

void net_end_close(struct net_end *end)
{
	int *fds[] = { &end->namespace_fd, &end->tun_fd, &end->inet_fd, &end->netlink_fd };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}
