/* SPDX-License-Identifier: Apache-2.0 */
/* How many bytes and frames a packet that TUN hands over in one piece is on the wire. */
#include "tests/lab/lanem_relay.h"

#include <linux/virtio_net.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define IP_SIZE	 20u
#define TCP_SIZE 32u /* with a time stamp */
#define MSS	 1448u

static uint8_t packet[NET_PACKET_MAX];

/* A TCP packet with so much payload, as TUN gives it; its size. */
static uint32_t make(uint32_t payload, uint8_t gso_type)
{
	struct virtio_net_hdr vnet = {
		.gso_type = gso_type,
		.gso_size = gso_type ? MSS : 0,
		.csum_start = IP_SIZE,
	};

	memset(packet, 0, sizeof(packet));
	memcpy(packet, &vnet, NET_VNET_SIZE);
	packet[NET_VNET_SIZE] = 0x45;
	packet[NET_VNET_SIZE + IP_SIZE + 12] = TCP_SIZE / 4 << 4;
	return NET_VNET_SIZE + IP_SIZE + TCP_SIZE + payload;
}

static void a_single_frame_is_what_it_is(void **state)
{
	uint32_t frames, size = make(100, VIRTIO_NET_HDR_GSO_NONE);

	assert_int_equal(relay_wire_bytes(packet, size, &frames), IP_SIZE + TCP_SIZE + 100);
	assert_int_equal(frames, 1);
}

static void each_segment_pays_its_headers(void **state)
{
	uint32_t frames, size = make(10 * MSS, VIRTIO_NET_HDR_GSO_TCPV4);

	assert_int_equal(relay_wire_bytes(packet, size, &frames), 10 * (MSS + IP_SIZE + TCP_SIZE));
	assert_int_equal(frames, 10);
	size = make(10 * MSS + 1, VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN);
	assert_int_equal(relay_wire_bytes(packet, size, &frames), 10 * MSS + 1 + 11 * (IP_SIZE + TCP_SIZE));
	assert_int_equal(frames, 11);
}

/* A program with rights in the namespace can write what it likes: nothing is read outside, no frame is free.
 */
static void lying_headers_do_no_harm(void **state)
{
	struct virtio_net_hdr vnet;
	uint32_t frames, size;

	for (uint32_t length = NET_VNET_SIZE + 20; length < NET_VNET_SIZE + 80; length++) {
		for (uint32_t start = 0; start < 0x10000; start += start < 100 ? 1 : 9973) {
			make(0, VIRTIO_NET_HDR_GSO_TCPV4);
			memcpy(&vnet, packet, NET_VNET_SIZE);
			vnet.csum_start = start;
			memcpy(packet, &vnet, NET_VNET_SIZE);
			assert_true(relay_wire_bytes(packet, length, &frames) >= 1);
			assert_in_range(frames, 1, length);
		}
	}
	size = make(1000, VIRTIO_NET_HDR_GSO_TCPV4);
	packet[NET_VNET_SIZE + IP_SIZE + 12] = 0xf0;
	assert_true(relay_wire_bytes(packet, size, &frames) >= 1000);
	memset(packet + 4, 0, 2); /* gso_size 0 */
	assert_int_equal(relay_wire_bytes(packet, size, &frames), size - NET_VNET_SIZE);
	assert_int_equal(frames, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_single_frame_is_what_it_is),
		cmocka_unit_test(each_segment_pays_its_headers),
		cmocka_unit_test(lying_headers_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
