#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random programs directly on a driver and through Gleam: the same results, codes and memory, or a difference.

    differ.py [options] [--seeds FIRST:COUNT]       compare; exit 0 when nothing differs
    differ.py [options] --shrink SEED|FILE          make a program that differs smaller, and print it
    differ.py [options] --play FILE...              compare kept programs

--differ is the program, --direct and --gleam the folders whose libcuda.so.1 it runs on (the daemon's socket is in
GLEAM_SOCKET). A seed that differs is run again; where the driver alone gives several answers the program itself is at
fault, which is told as such, and fails too.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

BATCH = 50           # seeds of one process
BATCH_SECONDS = 300  # a process that takes longer hangs; the program itself tells earlier which seed does
HANG = 20            # the program ends itself when one program takes so many seconds
AGAIN = 5            # how often a seed is run again to see whether it is determined


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--differ", required=True)
    parser.add_argument("--direct", required=True)
    parser.add_argument("--gleam", required=True)
    parser.add_argument("--seeds", default="1:100")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long, with what is done by then")
    parser.add_argument("--option", action="append", default=[], help="for the program: --real, --no-graphs ...")
    parser.add_argument("--keep", help="a file for what each seed gave, on both sides")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tries", type=int, default=4, help="of a program while it is made smaller")
    parser.add_argument("--shrink")
    parser.add_argument("--play", nargs="+")
    return parser.parse_args()


class Sides:
    def __init__(self, args):
        self.differ = os.path.abspath(args.differ)
        self.options = args.option
        self.folders = {"direct": os.path.abspath(args.direct), "gleam": os.path.abspath(args.gleam)}

    def run(self, side, extra, seconds=BATCH_SECONDS):
        """The lines that it printed, and how it ended."""
        env = dict(os.environ, LD_LIBRARY_PATH=self.folders[side] + ":" + os.environ.get("LD_LIBRARY_PATH", ""))
        try:
            done = subprocess.run([self.differ, "--hang", str(HANG), *extra], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=seconds, check=False)
        except subprocess.TimeoutExpired as error:
            return (error.stdout or b"").decode(errors="replace").splitlines(), "time"
        return done.stdout.decode(errors="replace").splitlines(), done.returncode

    def seeds(self, side, first, count):
        """What each seed gave; a crash or a hang is what the seed gave that it happened in. And what each operation gave."""
        result, parts, seed, end = {}, {}, first, first + count
        while seed < end:
            lines, status = self.run(side, ["--seed", str(seed), "--count", str(end - seed), "--parts", *self.options])
            before = seed
            for line in lines:
                if line.startswith(f"parts of seed {seed}: "):
                    parts[seed] = line.split(": ", 1)[1].split()
                if line.startswith(f"seed {seed}: "):
                    result[seed] = line.split(": ", 1)[1]
                    seed += 1
            if seed < end:
                last = lines[-1] if lines and not lines[-1].startswith("seed %d:" % (seed - 1)) else ""
                result[seed] = f"ended with {status}: {last}"
                seed += 1
            if seed == before:
                break
        return result, parts

    def first_of(self, seed, direct, gleam):
        """The operations that gave something else, as text."""
        lines = self.run("direct", ["--seed", str(seed), "--print", *self.options])[0]
        lines = [line for line in lines if not line.startswith("#")] + ["the end"]
        wrong = [i for i, (a, b) in enumerate(zip(direct, gleam)) if a != b]
        return [f"{i}: {lines[i] if i < len(lines) else '?'}" for i in wrong[:4]]


def compare(sides, args):
    first, count = (int(part) for part in args.seeds.split(":"))
    batches = [(at, min(BATCH, first + count - at)) for at in range(first, first + count, BATCH)]
    started = time.monotonic()
    done, differing, undetermined = 0, [], []

    def batch(item):
        if args.seconds and time.monotonic() - started > args.seconds:
            return item, None, None, {}, {}
        direct, direct_parts = sides.seeds("direct", *item)
        gleam, gleam_parts = sides.seeds("gleam", *item)
        return item, direct, gleam, direct_parts, gleam_parts

    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        for item, direct, gleam, direct_parts, gleam_parts in pool.map(batch, batches):
            if direct is None:
                continue
            done += item[1]
            print(f"to seed {item[0] + item[1] - 1} after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            for seed in range(item[0], item[0] + item[1]):
                if args.keep:
                    with open(args.keep, "a", encoding="utf-8") as file:
                        print(f"{seed}\t{direct.get(seed)}\t{gleam.get(seed)}", file=file)
                if direct.get(seed) == gleam.get(seed):
                    continue
                if direct.get(seed, "").startswith("ended with"):
                    # Nothing to compare with: the driver alone crashes or hangs, and would cost as long again.
                    undetermined.append(seed)
                    print(f"seed {seed}: the driver alone {direct[seed]}; gleam: {gleam.get(seed)}", flush=True)
                    continue
                again = {sides.seeds("direct", seed, 1)[0][seed] for _ in range(AGAIN)} | {direct.get(seed)}
                (undetermined if len(again) > 1 else differing).append(seed)
                print(f"seed {seed}: {'not determined' if len(again) > 1 else 'differs'}\n"
                      f"  direct: {direct.get(seed)}\n  gleam:  {gleam.get(seed)}", flush=True)
                for line in sides.first_of(seed, direct_parts.get(seed, []), gleam_parts.get(seed, [])):
                    print(f"  operation {line}", flush=True)
    print(f"{done} seeds ({first} to {first + count - 1}) in {time.monotonic() - started:.0f} s: "
          f"{len(differing)} differ, {len(undetermined)} are not determined")
    return 1 if differing or undetermined else 0


# ---- smaller ----

def differs(sides, lines, tries):
    """Whether the program of these lines, made possible where it isn't, ever differs between the sides."""
    with tempfile.NamedTemporaryFile("w", suffix=".program") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        for _ in range(tries):
            direct = sides.run("direct", ["--play", file.name, "--mend"], 90)
            gleam = sides.run("gleam", ["--play", file.name, "--mend"], 90)
            if direct != gleam:
                return True
    return False


def shrink(sides, args):
    if os.path.exists(args.shrink):
        lines = open(args.shrink, encoding="utf-8").read().splitlines()
    else:
        lines = sides.run("direct", ["--seed", args.shrink, "--print", *sides.options])[0]
    if not differs(sides, lines, args.tries * 4):
        print("it does not differ")
        return 2
    step = len(lines) // 2
    while step:
        at = 0
        while at < len(lines):
            fewer = lines[:at] + lines[at + step:]
            if fewer and differs(sides, fewer, args.tries):
                lines = fewer
                print(f"{len(lines)} operations", file=sys.stderr, flush=True)
            else:
                at += step
        step //= 2
    with tempfile.NamedTemporaryFile("w", suffix=".program") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        print("\n".join(sides.run("direct", ["--play", file.name, "--mend", "--print"])[0]))
        for side in ("direct", "gleam"):
            print(f"# {side}")
            print("\n".join("#   " + line for line in sides.run(side, ["--play", file.name, "--mend", "--trace"], 90)[0]))
    return 0


def play(sides, args):
    wrong = 0
    for path in args.play:
        direct = sides.run("direct", ["--play", path], 90)
        gleam = sides.run("gleam", ["--play", path], 90)
        if direct != gleam or direct[1] != 0:
            wrong += 1
            print(f"{path}: {direct} directly, {gleam} through Gleam")
    print(f"{len(args.play)} kept programs: {wrong} differ")
    return 1 if wrong else 0


def main():
    args = arguments()
    sides = Sides(args)
    if args.shrink:
        return shrink(sides, args)
    if args.play:
        return play(sides, args)
    return compare(sides, args)


if __name__ == "__main__":
    sys.exit(main())
