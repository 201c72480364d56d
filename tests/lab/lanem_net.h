/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of the emulated LAN: a network namespace with a TUN interface, set up through netlink and ioctl
 * alone. The sockets kept in it work from wherever this process is, since a socket stays in the namespace
 * it was made in; this process never changes its own. Main thread only.
 */
#ifndef TESTS_LAB_LANEM_NET_H
#define TESTS_LAB_LANEM_NET_H

#include <stdbool.h>
#include <stdint.h>

#define NET_DEVICE "gl0"
/* 198.18.0.0/15 is set aside for benchmarks of networks (RFC 2544), so it meets nobody's real network. */
#define NET_ADDR_A  "198.18.0.1"
#define NET_ADDR_B  "198.18.0.2"
#define NET_ADDR6_A "fd67:6c65:616d::1"
#define NET_ADDR6_B "fd67:6c65:616d::2"
#define NET_PREFIX  30
#define NET_PREFIX6 64
/* struct virtio_net_hdr, which is before each packet of the TUN descriptor. */
#define NET_VNET_SIZE 10
/* The largest IP packet, and its virtio header. */
#define NET_PACKET_MAX (NET_VNET_SIZE + 65536)

struct net_conf {
	const char *addr, *peer;
	const char *addr6;
	uint32_t mtu;
	const char *congestion; /* TCP's congestion control in this namespace; NULL: the kernel's default */
	bool offload;
};

struct net_end {
	int namespace_fd;
	int tun_fd;  /* does not block */
	int inet_fd; /* for ioctl on the interface */
	int netlink_fd;
};

struct net_counters {
	uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped;
};

/*
 * Makes the namespace and all in it. *@step_out names what was tried last. Waits for a process of its own,
 * so before anything else collects children.
 */
int net_end_open(struct net_end *end, const struct net_conf *conf, const char **step_out);
/* Gives back the descriptors; the namespace lives as long as a process or mount holds it. */
void net_end_close(struct net_end *end);

/* Packets of up to 64 KiB (true), or as they are on the wire, each at most an MTU (false). */
int net_end_offload(const struct net_end *end, bool on);
int net_end_link(const struct net_end *end, bool up);
int net_end_carrier(const struct net_end *end, bool on);
/* The speed that ethtool reports. */
int net_end_speed(const struct net_end *end, uint32_t mbit_per_s);

/* A netlink socket in the namespace of the calling thread, or -errno. */
int net_netlink_open(void);
int net_counters_read(int netlink_fd, struct net_counters *counters_out);

#endif
