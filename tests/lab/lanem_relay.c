/* SPDX-License-Identifier: Apache-2.0 */
/* The wire between two ends; see lanem_relay.h. */
#include "tests/lab/lanem_relay.h"

#include <errno.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u
/* Packets read from one end before the other has its turn. */
#define READ_BATCH 64
/* Below, a packet is copied out of the 64 KiB read buffer: a queue of small ones shall not hold megabytes. */
#define COPY_BELOW 16384u
/* What epoll reports of a watch; the two ends and the timer come first. */
enum { EVENT_END_A, EVENT_END_B, EVENT_TIMER, EVENT_WATCH };

uint64_t relay_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int epoll_add(struct relay *relay, int fd, uint32_t number)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = number };

	return epoll_ctl(relay->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int relay_init(struct relay *relay)
{
	int err;

	for (int i = 0; i < RELAY_WATCH_MAX; i++)
		relay->watch[i].fd = -1;
	relay->stop = false;
	relay->spare = NULL;
	relay->timer_fd = -1;
	relay->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (relay->epoll_fd < 0)
		return -errno;
	relay->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	err = relay->timer_fd < 0 ? -errno : epoll_add(relay, relay->timer_fd, EVENT_TIMER);
	for (int i = 0; i < 2 && !err; i++)
		err = epoll_add(relay, relay->end[i].tun_fd, EVENT_END_A + i);
	if (err)
		relay_fini(relay);
	return err;
}

void relay_fini(struct relay *relay)
{
	if (relay->timer_fd >= 0)
		close(relay->timer_fd);
	if (relay->epoll_fd >= 0)
		close(relay->epoll_fd);
	relay->timer_fd = relay->epoll_fd = -1;
	free(relay->spare);
	relay->spare = NULL;
}

int relay_watch(struct relay *relay, int fd, relay_ready_fn ready, void *context)
{
	for (int i = 0; i < RELAY_WATCH_MAX; i++) {
		if (relay->watch[i].fd >= 0)
			continue;
		relay->watch[i] = (struct relay_watch){ fd, ready, context };
		return epoll_add(relay, fd, EVENT_WATCH + i);
	}
	return -ENOSPC;
}

void relay_unwatch(struct relay *relay, int fd)
{
	for (int i = 0; i < RELAY_WATCH_MAX; i++) {
		if (relay->watch[i].fd != fd)
			continue;
		epoll_ctl(relay->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		relay->watch[i].fd = -1;
	}
}

/*
 * With TSO the kernel hands over up to 64 KiB as one packet: on the wire that is a frame per gso_size
 * bytes, each with a copy of the headers.
 */
uint64_t relay_wire_bytes(const uint8_t *packet, uint32_t size, uint32_t *frames_out)
{
	struct virtio_net_hdr vnet;
	uint32_t length = size - NET_VNET_SIZE, headers, payload, frames;

	*frames_out = 1;
	memcpy(&vnet, packet, sizeof(vnet));
	if (vnet.gso_type == VIRTIO_NET_HDR_GSO_NONE || !vnet.gso_size)
		return length;
	/* TCP's header begins where its checksum does; its length is in words, in the upper half of byte 12.
	 */
	if (vnet.csum_start + 13u > length)
		return length;
	headers = vnet.csum_start + (packet[NET_VNET_SIZE + vnet.csum_start + 12] >> 4) * 4u;
	if (headers >= length)
		return length;
	payload = length - headers;
	frames = (payload + vnet.gso_size - 1) / vnet.gso_size;
	*frames_out = frames;
	return (uint64_t)payload + (uint64_t)frames * headers;
}

static bool is_multicast(const uint8_t *packet, uint32_t size)
{
	const uint8_t *ip = packet + NET_VNET_SIZE;

	if (size < NET_VNET_SIZE + 20)
		return true; /* no IP packet at all */
	if (ip[0] >> 4 == 4)
		return ip[16] >= 224;
	return size < NET_VNET_SIZE + 40 || ip[24] == 0xff;
}

static void deliver(struct relay *relay, int lane, const uint8_t *data, uint32_t size)
{
	if (write(relay->end[!lane].tun_fd, data, size) < 0)
		relay->unwritten[lane]++;
}

static void deliver_due(struct relay *relay, int lane)
{
	struct lane_packet packet;
	uint64_t now = relay_now_ns();

	while (lane_pop(&relay->lane[lane], now, &packet)) {
		deliver(relay, lane, packet.data, packet.size);
		free(packet.data);
	}
}

/* A buffer of the packet's own: the read buffer itself where it is well filled. NULL without memory. */
static uint8_t *keep(struct relay *relay, uint32_t size)
{
	uint8_t *data;

	if (size >= COPY_BELOW) {
		data = relay->spare;
		relay->spare = NULL;
		return data;
	}
	data = malloc(size);
	if (data)
		memcpy(data, relay->spare, size);
	return data;
}

static int read_end(struct relay *relay, int end)
{
	for (int i = 0; i < READ_BATCH; i++) {
		uint64_t wire_bytes;
		uint32_t frames;
		uint8_t *data;
		ssize_t size;

		if (!relay->spare)
			relay->spare = malloc(NET_PACKET_MAX);
		if (!relay->spare)
			return -ENOMEM;
		size = read(relay->end[end].tun_fd, relay->spare, NET_PACKET_MAX);
		if (size < 0)
			return errno == EAGAIN || errno == EINTR || errno == EIO ? 0 : -errno;
		if (size < NET_VNET_SIZE || is_multicast(relay->spare, size)) {
			relay->ignored[end]++;
			continue;
		}
		wire_bytes = relay_wire_bytes(relay->spare, size, &frames);
		data = keep(relay, size);
		if (!data)
			return -ENOMEM;
		if (lane_push(&relay->lane[end], relay_now_ns(), data, size, wire_bytes, frames) !=
		    LANE_TAKEN)
			free(data);
	}
	return 0;
}

static int arm(struct relay *relay)
{
	uint64_t next = lane_next_ns(&relay->lane[RELAY_AB]);
	uint64_t back = lane_next_ns(&relay->lane[RELAY_BA]);
	struct itimerspec when = { 0 };

	if (back < next)
		next = back;
	if (next != LANE_NEVER) {
		when.it_value.tv_sec = next / NS_PER_S;
		when.it_value.tv_nsec = next % NS_PER_S;
	}
	return timerfd_settime(relay->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) < 0 ? -errno : 0;
}

static int handle(struct relay *relay, uint32_t number)
{
	uint64_t expirations;

	if (number == EVENT_END_A || number == EVENT_END_B)
		return read_end(relay, number - EVENT_END_A);
	if (number == EVENT_TIMER) {
		(void)!read(relay->timer_fd, &expirations, sizeof(expirations));
		return 0;
	}
	/* An earlier event of this batch may have ended the watch. */
	number -= EVENT_WATCH;
	if (relay->watch[number].fd >= 0)
		relay->watch[number].ready(relay->watch[number].context, relay->watch[number].fd);
	return 0;
}

int relay_run(struct relay *relay)
{
	struct epoll_event events[RELAY_WATCH_MAX + EVENT_WATCH];
	int err = 0;

	while (!relay->stop && !err) {
		int count = epoll_wait(relay->epoll_fd, events, RELAY_WATCH_MAX + EVENT_WATCH, -1);

		if (count < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < count && !err; i++)
			err = handle(relay, events[i].data.u32);
		deliver_due(relay, RELAY_AB);
		deliver_due(relay, RELAY_BA);
		if (!err)
			err = arm(relay);
	}
	return err;
}
