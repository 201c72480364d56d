#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The man pages tell exactly the commands, options, settings, files and variables that there are.
. "$(dirname "$0")/../lib/e2e.sh"

need_built bin/gleamctl bin/gleamd bin/gleam-bench
man=$TOP/docs/man

# Options in a text, one a line.
options() { grep -oE -- '--[a-z][a-z-]+' | sort -u; }
# A page with hyphens that are hyphens, fonts and comments taken out.
page() { sed -E '/^\.\\"/d; s/\\-/-/g; s/\\f[A-Z]//g' "$man/$1"; }
# The part of a page under a heading (.SH or .SS) that begins with these words.
part() { page "$1" | awk -v words="$2" '/^\.S[HS] / { line = $0; sub(/^\.S[HS] "?/, "", line); on = index(line " ", words " ") == 1 || line == words } on'; }
# What begins a tagged paragraph.
tags() { awk 'tag { print; tag = 0 } /^\.TP/ { tag = 1 }'; }
equal() { diff -u --label help --label page <(printf '%s\n' "$2") <(printf '%s\n' "$3") || fail "$1"; }

# --- gleamctl: commands, and the options of each
help=$("$OUT/bin/gleamctl" --help)
commands=$(printf '%s\n' "$help" | sed -nE 's/^  ([a-z]+)  .*/\1/p')
[ "$(printf '%s\n' "$commands" | wc -l)" -ge 7 ] || fail "commands: $commands"
equal "commands" "$(printf '%s\n' "$commands" | sort)" \
	"$(part gleamctl.1 COMMANDS >/dev/null; page gleamctl.1 | sed -n '/^\.SH COMMANDS/,/^\.SH OPTIONS/p' |
		sed -nE 's/^\.SS "?([a-z]+).*/\1/p' | sort)"
all=
for command in $commands; do
	told=$("$OUT/bin/gleamctl" "$command" --help | options)
	all="$all
$told"
	equal "options of $command" "$(printf '%s\n' "$told" | grep -vx -- --help)" \
		"$(part gleamctl.1 "$command" | sed -n '/^Options:/,$p' | options)"
done
equal "options of all" "$(printf '%s\n' "$all" | sed '/^$/d' | sort -u)" "$(page gleamctl.1 | sed -n '/^\.SH COMMANDS/,/^\.SH EXIT/p' | tags | options)"

# --- gleamd
equal "options of gleamd" "$("$OUT/bin/gleamd" --help | options)" "$(part gleamd.8 OPTIONS | tags | options)"

# --- gleam-bench
told=$("$OUT/bin/gleam-bench" --help | options)
[ "$(printf '%s\n' "$told" | wc -l)" -ge 10 ] || fail "options of gleam-bench: $told"
equal "options of gleam-bench" "$told" "$(part gleam-bench.1 OPTIONS | tags | options)"

# --- gleam.conf: what the reader of settings knows
settings=$(sed -nE 's/.*IS\("([a-z]+)", "([a-z_]+)"\).*/\1 \2/p' "$TOP/broker/lib/conf.c" | sort)
[ "$(printf '%s\n' "$settings" | wc -l)" -ge 12 ] || fail "settings: $settings"
equal "settings" "$settings" "$(page gleam.conf.5 | awk '/^\.SS \[/ { gsub(/[][]/, "", $2); section = $2 }
	/^\.SH/ { section = "" } tag && section { print section, $2; tag = 0 } /^\.TP/ { tag = 1 }' | sort)"
# A name that isn't known is answered by those that are.
while read -r section name; do
	same "an unknown setting of [$section]" 1 "$(printf '[%s]\nheight = 1\n' "$section" >"$TMP/wrong.conf"
		status_of timeout "$(slow 10)" "$OUT/bin/gleamd" --config "$TMP/wrong.conf" --socket "$TMP/s" --no-fuse)"
	grep -qE "wrong.conf:2: there is no setting .height. in \[$section\]; it has .*\b$name\b" "$TMP/status.out" ||
		fail "[$section] $name is not named: $(cat "$TMP/status.out")"
done <<<"$settings"
printf '[attic]\nheight = 1\n' >"$TMP/wrong.conf"
same "an unknown section" 1 "$(status_of timeout "$(slow 10)" "$OUT/bin/gleamd" --config "$TMP/wrong.conf" --socket "$TMP/s" --no-fuse)"
grep -qE "wrong.conf:2: there is no section \[attic\]; there are .*\[daemon\], .*\[tree\]" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
# Its example can be read.
page gleam.conf.5 | sed -n '/^\.nf/,/^\.fi/p' | sed '/^\./d; s|^file = .*||; s|^listen = .*|listen = nonsense|' >"$TMP/gleam.conf"
same "the example, with a wrong address" 1 "$(status_of timeout "$(slow 10)" "$OUT/bin/gleamd" --config "$TMP/gleam.conf" --socket "$TMP/s" --driver softgpu --no-fuse)"
grep -q nonsense "$TMP/status.out" || fail "the example is not read: $(cat "$TMP/status.out")"

# --- gleam: the files of the tree
for kind in server gpu client; do
	case $kind in
	server) heading=servers/NAME/ more="cache gpus" ;;
	gpu) heading=servers/NAME/gpus/N/ more= ;;
	client) heading=clients/PID/ more= ;;
	esac
	files=$( (grep -oE "\{ \"[a-z_]+\", ([A-Z_]+, )?${kind}_[a-z_]+ \}" "$TOP/broker/local/tree_file.c" | cut -d'"' -f2; printf "%s\n" $more) | sed '/^$/d' | sort)
	equal "files of a $kind" "$files" "$(part gleam.7 "$heading" | tags | awk '{ print $2 }' | sort)"
done
# GLEAM_NOT is the library's own word to gleamd; nobody sets it.
variables=$(grep -rhoE '"GLEAM_[A-Z_]+"' "$TOP/libgleamcuda" --include='*.c' | tr -d '"' | grep -vx GLEAM_NOT | sort -u)
equal "variables" "$variables" "$(part gleam.7 ENVIRONMENT | tags | awk '{ print $2 }' | grep GLEAM | sort)"

# --- no lint
for file in "$man"/*.[1-9]; do
	if command -v mandoc >/dev/null 2>&1; then
		mandoc -T lint -W warning "$file" | grep -v 'missing date' >"$TMP/lint" && fail "$(cat "$TMP/lint")" || true
	elif command -v groff >/dev/null 2>&1; then
		groff -man -Tutf8 -ww -z "$file" 2>"$TMP/lint"
		[ ! -s "$TMP/lint" ] || fail "$(cat "$TMP/lint")"
	fi
done
