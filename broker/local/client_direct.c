// SPDX-License-Identifier: Apache-2.0
/*
 * A client that shares its memory with a worker of this machine: its commands, and what comes of them, don't pass us. Where it is to
 * move, or its worker is asked about that, the worker is told by rings of our own (the side rings) to take no more of its commands, and
 * to go on; and at the end its memory becomes that of a client like others, whose commands we take. Control thread.
 */
#include "broker/local/client_private.h"

#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/local/broker.h"
#include "broker/node/node.h"
#include "gen/msg.h"
#include "gen/ops.h"

#define HOLD_REPLY_SLOT	 2 /* of the answer with sequence number 0 that no more commands are taken */
#define GO_ON_REPLY_SLOT 3 /* that they are: for nobody */

void client_direct(struct client *client)
{
	struct node *node = broker_node(client->broker);
	struct shm shm;
	int fd;

	if (!node || !broker_conf(client->broker)->direct || client->kernel_memory >= 0 || (client->mirror.off & OFF_DIRECT))
		return;
	fd = node_direct(node, link_id(client->link), client->mirror.id, &client->pages);
	if (fd < 0)
		return;
	/* No lane uses the old one: the mirror isn't live yet. If this fails the session can't go on, as the seat moves nothing. */
	if (shm_map(&shm, fd, protocol_hash)) {
		client_refuse(client, END_REFUSED, "can't map the worker's memory");
		return;
	}
	shm_close(&client->mirror.shm);
	client->mirror.shm = shm;
	shm_ring_c2n(&client->mirror.shm, &client->c2n);
	shm_ring_n2c(&client->mirror.shm, &client->n2c);
	client->wire = (struct wire){ .link = client->link, .session = client->mirror.id };
	client->direct = true;
}

/* False: no room now. */
static bool step_ask(struct client *client, enum move_step step, uint16_t slot)
{
	uint8_t frame[128] __attribute__((aligned(8))) = { 0 };
	struct msg_gleamMoveOut m = { .step = step };
	struct frame_hdr hdr = {
		.op = OP_gleamMoveOut, .kind = FRAME_COMMAND, .ctx = CTX_NONE, .slot = slot, .flags = FRAME_WANTS_REPLY,
	};
	struct writer w = writer_on(frame + sizeof(hdr), sizeof(frame) - sizeof(hdr));

	msg_gleamMoveOut_put(&w, &m);
	hdr.size = (uint32_t)(sizeof(hdr) + w.at);
	memcpy(frame, &hdr, sizeof(hdr));
	return wire_put(&client->wire, frame, hdr.size);
}

/*
 * Copies that name pages of the program are for the worker that has mapped them: before its commands go to another one it sends no more of
 * them.
 */
void client_direct_pages(struct client *client, bool allowed)
{
	if (client->direct && client->pages >= 0)
		__atomic_store_n(&shm_header(&client->mirror.shm)->pages, allowed, __ATOMIC_SEQ_CST);
}

bool client_direct_has_pages(const struct client *client)
{
	struct ring ring = client->c2n;
	struct frame_hdr hdr;
	const uint8_t *frame;

	/* Pairs with the fence in pages_begin(): either the client sees that they are not allowed any more, or we see that it is at it. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&shm_header(&client->mirror.shm)->pages_open, __ATOMIC_ACQUIRE))
		return true;
	for (; ring_look(&ring, &hdr, &frame) == 1; ring_next(&ring, &hdr))
		if (hdr.kind == FRAME_COMMAND && (hdr.op == OP_gleamPagesUp || hdr.op == OP_gleamPagesDown))
			return true;
	return false;
}

bool client_direct_take(struct client *client)
{
	if (!client->hold_asked)
		client->hold_asked = step_ask(client, MOVE_HOLD, HOLD_REPLY_SLOT);
	client->taken = client->hold_asked && client->hold_answered;
	return client->taken;
}

bool client_direct_give(struct client *client)
{
	if (!step_ask(client, MOVE_GO_ON, GO_ON_REPLY_SLOT))
		return false;
	client->hold_asked = client->hold_answered = false;
	client->taken = false;
	client->held = false;
	return true;
}

bool client_direct_frame(struct client *client, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct ans_gleamMoveOut a = { 0 };
	struct reader r = reader_on(frame + sizeof(*hdr), hdr->size - sizeof(*hdr));

	if (hdr->kind != FRAME_REPLY || hdr->op != OP_gleamMoveOut || hdr->slot != HOLD_REPLY_SLOT || !client->hold_asked)
		return false;
	if (get_u32(&r) || !ans_gleamMoveOut_get(&r, &a))
		return true; /* nothing comes of it, in time */
	client->seq = a.sequence;
	client->hold_answered = true;
	loop_nudge(client->loop);
	return true;
}

/*
 * The ring's ends lie in memory that the program can write, too: one that is odd is refused, and one that is wrong is the program's own loss.
 */
static bool end_of(const struct ring_ctl *ctl, uint32_t size, uint64_t *tail_out, uint64_t *head_out)
{
	*tail_out = __atomic_load_n(&ctl->tail, __ATOMIC_ACQUIRE);
	*head_out = __atomic_load_n(&ctl->head, __ATOMIC_ACQUIRE);
	return *tail_out <= *head_out && *head_out - *tail_out <= size && !((*tail_out | *head_out) & (FRAME_ALIGN - 1));
}

bool client_direct_stand(struct client *client)
{
	const struct session_header *header = shm_header(&client->mirror.shm);
	struct ring_ctl *c2n = client->c2n.ctl, *n2c = client->n2c.ctl;
	uint64_t tail, head, up_tail = __atomic_load_n(&header->up_tail, __ATOMIC_ACQUIRE);

	if (!end_of(c2n, SESSION_C2N_SIZE, &tail, &head))
		return false;
	ring_init(&client->c2n, c2n, client->c2n.bytes, SESSION_C2N_SIZE, tail);
	if (!end_of(n2c, SESSION_N2C_SIZE, &tail, &head))
		return false;
	ring_init(&client->n2c, n2c, client->n2c.bytes, SESSION_N2C_SIZE, head);
	client->n2c.seen = tail;
	/* It goes on uploading, and what was passed over of an empty arena is free though the tail lies before it: up to another lap. */
	if (up_tail % SESSION_GRANULE || __atomic_load_n(&header->up_head, __ATOMIC_ACQUIRE) - up_tail >= 2 * SESSION_UP_SIZE)
		return false;
	client->acknowledged = client->c2n.at;
	__atomic_store_n(&client->up_tail, up_tail, __ATOMIC_RELEASE);
	return true;
}

void client_direct_end(struct client *client)
{
	struct session_header *header = shm_header(&client->mirror.shm);
	struct node *node = broker_node(client->broker);

	/* Before it is told to end, so that it isn't the program that ends. */
	if (node && node_left(node, link_id(client->link), client->mirror.id))
		log_error("pid %d: its worker isn't the one that it shares its memory with", client->pid);
	shm_ring_overflow(&client->mirror.shm, &client->overflow_in);
	client->overflow_out = client->overflow_in;
	/* Its worker's memory doesn't know: it would have ended with us. */
	__atomic_store_n(&header->grace_ms, (uint32_t)broker_conf(client->broker)->grace_ms, __ATOMIC_RELAXED);
	client->direct = false;
	client->hold_asked = client->hold_answered = false;
	__atomic_store_n(&header->direct, 0, __ATOMIC_RELEASE);
	/* Pairs with the fence in consumer_wake(): who ends a sleep that we announce from here on sees that it is ours. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&client->mirror.live, true, __ATOMIC_RELEASE);
}
