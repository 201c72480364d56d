/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a link: link.c (messages, mirrors, life) and link_lane.c (its bulk lanes). Control thread, but for the table of mirrors.
 */
#ifndef GLEAM_CORE_LINK_PRIVATE_H
#define GLEAM_CORE_LINK_PRIVATE_H

#include <pthread.h>

#include "broker/core/link.h"
#include "broker/core/pings.h"

#define LINK_BUCKETS 256u /* of sessions by number: a few hundred at most */

/*
 * OPENING: hellos are exchanged. READY: as told. LOST: everything is being closed; the owner has been or will be told.
 */
enum link_state { LINK_OPENING, LINK_IS_READY, LINK_LOST };

struct link_lane {
	struct link *link;
	unsigned number;
	struct hello_info hello;
	/* one of these at a time, in this order */
	int fd;		     /* broker: connecting */
	struct hello *greeting; /* broker: hello said */
	struct conn *moving; /* on its way to the lane's thread */
	struct lane *lane;
	uint64_t busy_ns; /* until then it has something to do, at either end, as far as one can guess */
};

struct link {
	struct loop *loop;
	bool node;
	struct link_setting setting;
	const struct link_ops *ops;
	void *owner;
	enum link_state state;
	struct hello_info hello;
	char peer[PEER_TEXT_SIZE];
	char host[HELLO_HOST_SIZE];
	char tenant[KEY_TENANT_SIZE];

	struct sockaddr_storage address; /* broker: where lanes go */
	socklen_t address_size;
	struct hello *greeting; /* broker: of the command connection */
	struct conn *command;
	struct link_hdr hdr;
	uint8_t *body;
	bool in_body;
	struct link_lane lanes[LINK_LANES_MAX];
	uint64_t bandwidth; /* bytes a second, the newest counting most; 0: too few have been sent */
	struct link_mark mark; /* when that was measured last */
	unsigned lanes_up;
	unsigned turn;

	unsigned pending; /* connects and moves whose end we wait for before the owner is told */
	bool told;
	int err;
	char why[CONN_WHY_SIZE];

	struct loop_timer tick;
	struct pings pings;
	bool probe_due;	       /* one a tick, whatever a peer answers */
	uint32_t padding_sent; /* bytes of the newest padded ping */

	struct loop_post post; /* told, then freed */

	pthread_mutex_t table_lock;
	/* guarded by table_lock */
	struct mirror *table[LINK_BUCKETS];
};

/* When all lanes are there the owner is told. */
void link_look(struct link *link);
/* Closes all of it, once; the owner is told by link_tell() when nothing runs any more. */
void link_lose(struct link *link, int err, const char *why);
/* When nothing of a lost link runs any more, its owner hears of it, from the loop. Whatever has ended calls it. */
void link_tell(struct link *link);

/* link_lane.c: connects a lane; what becomes of it is told by link_look() or link_lose(). */
void link_lane_begin(struct link_lane *slot);
/* No delays, and a dead peer is noticed within @keepalive_ns. */
void link_socket_tune(int fd, uint64_t keepalive_ns);
/* Of connections that have nothing to hear. */
void link_conn_up(void *owner);
int link_conn_part(void *owner);

#endif
