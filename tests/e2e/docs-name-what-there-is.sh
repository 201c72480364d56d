#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# README, guides and the rest of docs/ name commands, options, make targets, files and pages that there are.
. "$(dirname "$0")/../lib/e2e.sh"

need_cmd python3
need_built bin/gleamctl bin/gleamd
cd "$TOP"
env -u MAKEFLAGS -u MFLAGS make -pn O="$OUT" 2>/dev/null | grep -oE '^[a-z][a-z-]*:' | tr -d : | sort -u >"$TMP/targets"
[ "$(wc -l <"$TMP/targets")" -ge 20 ] || fail "make tells few targets: $(cat "$TMP/targets")"
git -C "$TOP" ls-files README.md 'docs/*.md' 'docs/**/*.md' >"$TMP/pages" 2>/dev/null || find README.md docs -name '*.md' >"$TMP/pages"
python3 - "$OUT" "$TMP/targets" "$TMP/pages" <<'END' >"$TMP/wrong" || fail "$(cat "$TMP/wrong")"
import glob
import os
import re
import subprocess
import sys

out, targets, pages = sys.argv[1], set(open(sys.argv[2]).read().split()), open(sys.argv[3]).read().split()


def options(program, *command):
    text = subprocess.run([f"{out}/bin/{program}", *command, "--help"], capture_output=True, text=True, check=True).stdout
    return text, set(re.findall(r"--[a-z][a-z-]+", text))


commands = re.findall(r"^  ([a-z]+)  ", options("gleamctl")[0], re.M)
known = {command: options("gleamctl", command)[1] for command in commands}
daemon = options("gleamd")[1] | {"--probe-driver"}  # its own, for a process of it
# What stands for a name of the reader's, and words of prose behind the program's name.
PATTERN = re.compile(r"NOUN|NAME|noun|BEHAVIOUR|corpus/name|fuzz_name|what-is-seen")
PROSE = {"makes", "migrates", "shows", "says", "tells", "asks", "and", "or", "on", "with", "is"}
checked = 0
wrong = []
for page in pages:
    folder = os.path.dirname(page)
    for number, line in enumerate(open(page, encoding="utf-8"), 1):
        def say(what):
            wrong.append(f"{page}:{number}: {what}")

        for name, rest in re.findall(r"gleamctl ([a-z]+)((?: [^`\n]*)?)", line):
            if name not in known:
                if name not in PROSE:
                    say(f"gleamctl has no command {name}")
                continue
            rest = re.split(r" -- |#|&&|\||;", rest)[0]
            checked += 1
            for option in re.findall(r"--[a-z][a-z-]+", rest):
                if option not in known[name]:
                    say(f"gleamctl {name} has no option {option}")
        for rest in re.findall(r"`gleamd( --[^`]*)`", line):
            for option in re.findall(r"--[a-z][a-z-]+", rest):
                if option not in daemon:
                    say(f"gleamd has no option {option}")
        for target in re.findall(r"(?:^|`|sudo |&& )make ([a-z][a-z-]+)", line):
            checked += 1
            if target not in targets:
                say(f"there is nothing to make of the name {target}")
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            checked += 1
            if not link.startswith("http") and not os.path.exists(os.path.join(folder, link)):
                say(f"there is no {link}")
        for path in re.findall(r"`((?:tests|broker|libgleamcuda|docs|tools|kmod)/[A-Za-z0-9_./-]+)`", line):
            checked += 1
            if not PATTERN.search(path) and not glob.glob(path.rstrip("/.") + "*"):
                say(f"there is no {path}")
print("\n".join(wrong) or f"{checked} names")
sys.exit(bool(wrong) or checked < 100)
END
say "$(cat "$TMP/wrong")"
