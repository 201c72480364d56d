#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# A program that does nothing for a long time finds its session as it was, since its link shows life in both directions as often as it is
# told to (a filter between forgets no flow); when nothing arrives any more both ends notice within their bound, the node frees what
# the program had, and it gets an error (field case P-026, scaled from minutes to seconds).
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_root "(network namespaces)"
[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
lanem=$OUT/tests/lab/lanem
lab=idle$$
start_bg lab "$lanem" up --name $lab --rtt 0.3
wait_for 10 grep -qx ready "$TMP/lab.log"
"$OUT/bin/gleamctl" key new "$TMP/key" >/dev/null
limits=(--keepalive 2 --grace 2)
start_bg node "$lanem" exec B --name $lab -- "$OUT/bin/gleamd" --no-fuse --socket "$TMP/node.sock" --listen 198.18.0.2:4711 \
	--driver softgpu --key "$TMP/key" "${limits[@]}"
wait_for 20 log_has node "is ready"
start_bg client "$lanem" exec A --name $lab -- "$OUT/bin/gleamd" --no-fuse --socket "$TMP/client.sock" \
	--server lab=198.18.0.2:4711 --key "$TMP/key" "${limits[@]}"
wait_for 20 log_has client "is ready"

# Three times the silence that is allowed; then it goes on.
LD_LIBRARY_PATH=$OUT/lib start_bg idle "$OUT/tests/cuda/vecadd" 1000 2 6000
wait_for 20 log_has node "session 1 "
sleep 2
packets() { "$lanem" ctl --name $lab stats | python3 -c 'import json, sys; s = json.load(sys.stdin); print(*(s[d]["delivered"] for d in ("ab", "ba")))'; }
read -r ab ba < <(packets)
sleep 4
read -r ab2 ba2 < <(packets)
[ $((ab2 - ab)) -ge 2 ] && [ $((ba2 - ba)) -ge 2 ] || fail "in 4 s of silence $((ab2 - ab)) and $((ba2 - ba)) packets"
wait_for 25 log_has idle passed || fail "the program that was idle: $(cat "$TMP/idle.log")"

# Cut off in the middle of its work.
LD_LIBRARY_PATH=$OUT/lib start_bg cut "$OUT/tests/cuda/vecadd" 1000 1000 200
wait_for 20 log_has node "session 2 "
"$lanem" ctl --name $lab cut forever >/dev/null
started=$(($(now_ns) / 1000000000))
wait_for 30 log_has cut "CUDA_ERROR" || fail "the program that is cut off: $(cat "$TMP/cut.log")"
wait_for 30 log_has node "session 2 .*ended"
between "seconds until both have noticed" 1 $(($(($(now_ns) / 1000000000)) - started)) 25
"$lanem" ctl --name $lab uncut >/dev/null
stop_bg client
stop_bg node
