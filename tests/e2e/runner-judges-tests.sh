#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# tests/run tells passing, failing, skipping, hanging, dying and leaking tests apart, leaves nothing of
# them, and its last line counts them.
. "$(dirname "$0")/../lib/e2e.sh"

mkdir "$TMP/t"
make_test() { # NAME < BODY
	case $1 in
	*.sh) { echo '#!/bin/bash'; cat; } >"$TMP/t/$1" ;;
	*) cat >"$TMP/t/$1" ;;
	esac
	chmod +x "$TMP/t/$1"
}
runner() { "$TOP/tests/run" --out "$TMP/out" "$@" >"$TMP/said" 2>"$TMP/complained"; }
last() { tail -n 1 "$TMP/said"; }
# fails_saying TEXT TEST...: the run fails, counts one failure, and gives that reason
fails_saying() {
	local text=$1
	shift
	if runner "$@"; then fail "a run of $* passed"; fi
	same "last line for $*" "0 passed, 1 failed" "$(last)"
	grep -q -- "$text" "$TMP/said" || { cat "$TMP/said"; fail "the reason of $* is not '$text'"; }
}

make_test good.sh <<<'echo "out is $GLEAM_OUT"; [ -d "$TMPDIR" ] && touch "$TMPDIR/left-over"'
make_test bad.sh <<'END'
for i in $(seq 100); do echo "line $i"; done
exit 3
END
make_test lazy.sh <<'END'
echo "something first"
echo "needs a machine nobody has"
exit 77
END
make_test python.py <<<'print("from python")'

runner "$TMP/t/good.sh" "$TMP/t/python.py" "$TMP/t/lazy.sh" || fail "a good run failed: $(cat "$TMP/said")"
same "last line" "2 passed, 0 failed" "$(last)"
same "the line before" "  skipped t/lazy: needs a machine nobody has" "$(tail -n 2 "$TMP/said" | head -n 1)"
grep -q "^out is $TMP/out\$" "$TMP/out/test-logs/t/good.log" || fail "no log of good, or GLEAM_OUT is wrong"

if runner "$TMP/t/good.sh" "$TMP/t/bad.sh" "$TMP/t/lazy.sh"; then fail "a failing run passed"; fi
same "last line" "1 passed, 1 failed" "$(last)"
grep -q "exit status 3" "$TMP/said" || fail "the status is not told"
grep -q "^    line 100\$" "$TMP/said" || fail "the end of the log is not shown"
grep -q "^    line 61\$" "$TMP/said" || fail "less than 40 lines are shown"
if grep -q "^    line 60\$" "$TMP/said"; then fail "more than 40 lines are shown"; fi

# the log of a second process of a name has nothing of the first from the start
for i in $(seq 20); do
	start_bg twin echo "I am ready"
	wait "$BG_PID"
	start_bg twin sleep 0
	left=
	read -r left <"$TMP/twin.log" || true # at once: no fork that gives it time
	same "what is left of the first ($i)" "" "$left"
	wait "$BG_PID"
done

# a second run, alone, where it is asked for: what passes then is named, what fails again has failed
make_test unsteady.sh <<END
[ -e $TMP/been ] && exit 0
touch $TMP/been
echo "the first time"
exit 4
END
fails_saying "exit status 4" "$TMP/t/unsteady.sh"
rm "$TMP/been"
runner --again 2 "$TMP/t/good.sh" "$TMP/t/unsteady.sh" || fail "it did not pass the second time: $(cat "$TMP/said")"
same "last line" "2 passed, 0 failed" "$(last)"
grep -q "exit status 4" "$TMP/said" || fail "the first failure is not shown"
same "the line before" "  unsteady t/unsteady: failed, then passed alone" "$(tail -n 2 "$TMP/said" | head -n 1)"
grep -q "the first time" "$TMP/out/test-logs/t/unsteady.first.log" || fail "the first log is gone"
rm "$TMP/been"
if runner --again 1 "$TMP/t/bad.sh" "$TMP/t/unsteady.sh"; then fail "two failures were run again, one may be"; fi
same "last line" "0 passed, 2 failed" "$(last)"
if runner --again 1 "$TMP/t/bad.sh"; then fail "a failing test passed when it was run again"; fi
same "last line" "0 passed, 1 failed" "$(last)"

# a program that cmocka makes: 77 failures are no skip
make_test cmocka-like.sh <<<'echo "[  FAILED  ] 77 test(s)"; echo bye; exit 77'
fails_saying "77 failures" "$TMP/t/cmocka-like.sh"
make_test dies.sh <<<'kill -SEGV $$'
fails_saying "killed by signal 11" "$TMP/t/dies.sh"

# a hang ends at its own limit, its trap runs, and what it started goes with it
make_test hangs.sh <<'END'
# time-limit: 1
trap 'echo "cleaned up"; exit 1' TERM
setsid sleep 987654 &
sleep 987653 & wait
END
began=$(($(now_ns) / 1000000000))
fails_saying "longer than its limit of 1 s" "$TMP/t/hangs.sh"
[ $(($(($(now_ns) / 1000000000)) - began)) -lt 15 ] || fail "a hang of 1 s took longer than 15 s"
grep -q "cleaned up" "$TMP/out/test-logs/t/hangs.log" || fail "its trap did not run"
grep -q "sleep 987654" "$TMP/said" || fail "what hung is not listed"
if pgrep -f '^sleep 98765[34]' >/dev/null; then fail "it left its children"; fi

# a daemon that hides in a session and an environment of its own is found all the same
make_test leaks-process.sh <<<'(setsid env -i /bin/sleep 987652 </dev/null >/dev/null 2>&1 &) ; exit 0'
fails_saying "left processes behind" "$TMP/t/leaks-process.sh"
grep -q "sleep 987652" "$TMP/said" || fail "the process is not named"
if pgrep -f '^/bin/sleep 987652' >/dev/null; then fail "the leaked process still runs"; fi

# one that needs a moment to end is none
make_test lingers.sh <<<'(setsid sleep 0.3 </dev/null >/dev/null 2>&1 &) ; exit 0'
runner "$TMP/t/lingers.sh" || fail "a process that ends soon counts as left behind"

# only one at a time
make_test serial-a.sh <<'END'
# serial
[ -z "$(ls "$MARKS")" ] || { ls "$MARKS"; exit 1; }
touch "$MARKS/$$"; sleep 0.3; rm "$MARKS/$$"
END
sed 's/# serial//' "$TMP/t/serial-a.sh" | sed 's/^\[.*//' >"$TMP/t/other.sh"
cp "$TMP/t/serial-a.sh" "$TMP/t/serial-b.sh"
mkdir "$TMP/marks"
MARKS=$TMP/marks runner -j 4 "$TMP/t/serial-a.sh" "$TMP/t/other.sh" "$TMP/t/serial-b.sh" ||
	fail "serial tests ran beside others: $(cat "$TMP/said")"

# a part of the tests; none is not success
runner --only goo "$TMP/t/good.sh" "$TMP/t/bad.sh" || fail "--only ran more than was asked"
same "last line" "1 passed, 0 failed" "$(last)"
if runner --only nothing-like-it "$TMP/t/good.sh"; then fail "no test at all passed"; fi
same "last line" "0 passed, 0 failed" "$(last)"
if runner "$TMP/t/absent.sh"; then fail "an absent test passed"; fi

# as root each test's mounts and network names are its own
if [ "$(id -u)" = 0 ]; then
	mkdir "$TMP/mnt"
	make_test leaks-mount.sh <<<"mount -t tmpfs none $TMP/mnt"
	fails_saying "left a mount behind: $TMP/mnt (tmpfs)" "$TMP/t/leaks-mount.sh"
	if grep -q " $TMP/mnt " /proc/self/mountinfo; then fail "the mount is still there"; fi
	make_test leaks-netns.sh <<<'touch /run/netns/leaked && unshare -n mount --bind /proc/self/ns/net /run/netns/leaked'
	fails_saying "left a network namespace behind: leaked" "$TMP/t/leaks-netns.sh"
	[ ! -e /run/netns/leaked ] || fail "the name is seen outside of the test"
fi

# stopped from outside, it takes its tests along
make_test long.sh <<<'echo started; sleep 987651'
start_bg runner "$TOP/tests/run" --out "$TMP/out" "$TMP/t/long.sh"
wait_for 10 grep -q started "$TMP/out/test-logs/t/long.log"
status=0
stop_bg runner || status=$?
same "exit status of a stopped run" 130 "$status"
wait_for 5 sh -c '! pgrep -f "^sleep 987651"' || fail "a stopped run left its test"
