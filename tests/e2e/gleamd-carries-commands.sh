#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Commands, replies, notices and words cross two daemons, in cleartext on loopback and by TLS; the daemons end cleanly.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

carry() {
	PORT=
	node_up node "$@"
	broker_up broker "$@"
	same server gpu "$(client broker try)"
	client broker echo 300
	client broker words
	client broker stream 20000
	client broker print 3000
	# Many sizes, one link: only the first client made it.
	same links 1 "$(grep -c 'server gpu: link to' "$TMP/broker.log")"
	daemons_down broker node
	same workers 0 "$(count_workers)"
}

carry
key_make "$TMP/key"
carry --key "$TMP/key"
log_has node "TLS, tenant lab"
