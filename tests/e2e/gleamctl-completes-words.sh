#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Completion offers commands, the options of each, servers and programs as they are now; in bash, zsh and fish where they are.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built bin/gleamctl
ctl=$OUT/bin/gleamctl
words() { "$ctl" __complete "$@" | cut -f1 | sort | tr '\n' ' ' | sed 's/ $//'; }
soft_up --no-fuse
LD_LIBRARY_PATH=$OUT/lib start_bg held "$OUT/tests/cuda/vecadd" 1000 100 1000
wait_for 20 eval '"$ctl" clients | grep -q vecadd'

same "commands" "$("$ctl" --help | sed -nE 's/^  ([a-z]+)  .*/\1/p' | sort | tr '\n' ' ' | sed 's/ $//')" "$(words '')"
same "a command begun" "servers stats status" "$(words s)"
for command in $("$ctl" --help | sed -nE 's/^  ([a-z]+)  .*/\1/p'); do
	same "options of $command" "$("$ctl" "$command" --help | grep -oE -- '--[a-z][a-z-]+' | sort -u | tr '\n' ' ' | sed 's/ $//')" \
		"$(words "$command" --)"
done
same "a server" lab "$(words run --server '')"
same "a program's number" "$(bg_pid held)" "$(words stats '')"
same "choices" "new show" "$(words key '')"
same "a choice begun" show "$(words key s)"
same "files" ":files" "$(words key show '')"
same "programs" ":programs" "$(words run -- '')"
same "files of a program" ":files" "$(words run -- ls --)"
same "nothing" "" "$(words nonsense '')"
same "nothing of a daemon that isn't there" "" "$(words stats --socket "$TMP/nobody" '')"

cat >"$TMP/bash" <<'END'
source <("$1" completion bash)
COMP_WORDS=("$1" run --server '') COMP_CWORD=3
_gleamctl
echo "${COMPREPLY[*]}"
COMP_WORDS=("$1" key sh) COMP_CWORD=2
_gleamctl
echo "${COMPREPLY[*]}"
cd "$2"
COMP_WORDS=("$1" key show cli) COMP_CWORD=3
_gleamctl
echo "${COMPREPLY[*]}"
complete -p gleamctl
END
same "bash" "lab
show
client.log client.sock
complete -F _gleamctl gleamctl" "$(bash "$TMP/bash" "$ctl" "$TMP")"
mkdir "$TMP/bin"
ln -s "$ctl" "$TMP/bin/gleamctl"
if command -v fish >/dev/null; then
	PATH=$TMP/bin:$PATH HOME=$TMP fish --no-config -c 'gleamctl completion fish | source; complete -C "gleamctl run --server "; complete -C "gleamctl key sh"' >"$TMP/fish.out"
	same "fish" "lab
show" "$(cut -f1 "$TMP/fish.out")"
else
	say "no fish here"
fi
if command -v zsh >/dev/null; then
	# Without a terminal zsh's own machinery does not run: what it would be given is looked at.
	PATH=$TMP/bin:$PATH zsh -f -c 'compdef() { :; }; source <(gleamctl completion zsh)
_describe() { print -l -- ${(P)4} }; words=(gleamctl run --server ""); CURRENT=4; _gleamctl; words=(gleamctl key sh); CURRENT=3; _gleamctl' >"$TMP/zsh.out"
	same "zsh" "lab:ready
show" "$(cat "$TMP/zsh.out")"
else
	say "no zsh here"
fi
stop_bg held KILL || true
soft_down
