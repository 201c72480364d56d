#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a traced program's calls cost at each end: a table of the file that `gleamctl trace --chrome FILE.json TRACE` writes.

Usage: spans.py FILE.json [LEAST_MS]
Of the library each function (count, milliseconds in all, mean and longest microseconds), and of the worker each command, as far as it took
LEAST_MS (0.5) in all; then how long the worker's executor was at work between its first and its last command.
"""
import json
import sys


def table(events, least_ms):
	"""Rows of text for the complete events of one process."""
	sums = {}
	for event in events:
		count, total, longest = sums.get(event["name"], (0, 0.0, 0.0))
		sums[event["name"]] = count + 1, total + event["dur"], max(longest, event["dur"])
	rows = []
	for name, (count, total, longest) in sorted(sums.items(), key=lambda item: -item[1][1]):
		if total >= least_ms * 1e3:
			rows.append(f"| {name} | {count} | {total / 1e3:.2f} | {total / count:.1f} | {longest:.0f} |")
	return rows


def report(events, least_ms=0.5):
	"""The whole text; events as Chrome has them."""
	names = {event["pid"]: event["args"]["name"] for event in events if event.get("ph") == "M" and event["name"] == "process_name"}
	lines = []
	for who in ("library", "worker"):
		mine = [event for event in events if event.get("ph") == "X" and names.get(event["pid"], "").startswith(who)]
		if not mine:
			continue
		lines += [f"| {who} | count | ms | mean us | longest us |", "| --- | --- | --- | --- | --- |", *table(mine, least_ms), ""]
		if who == "worker":
			first, last = min(event["ts"] for event in mine), max(event["ts"] + event["dur"] for event in mine)
			busy = sum(event["dur"] for event in mine)
			lines.append(f"The executor was at work for {busy / 1e3:.1f} ms of {(last - first) / 1e3:.1f}.")
	return "\n".join(lines)


def main():
	if len(sys.argv) < 2:
		print(__doc__, file=sys.stderr)
		return 2
	with open(sys.argv[1]) as file:
		data = json.load(file)
	print(report(data if isinstance(data, list) else data["traceEvents"], float(sys.argv[2]) if len(sys.argv) > 2 else 0.5))
	return 0


if __name__ == "__main__":
	sys.exit(main())
