#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs gleam-sim over its scenarios, prints the tables of docs/results/scheduler.md and draws its plots.

usage: plot.py GLEAM-SIM FOLDER-FOR-SVG [SEEDS]
"""
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
COLOURS = {"cost": "#1b6ca8", "least-loaded": "#e08e2b", "round-robin": "#9a9a9a", "oracle": "#3a8f4f"}
POLICIES = ["cost", "least-loaded", "round-robin", "oracle"]
LOADS = [0.25, 0.5, 0.75, 1, 1.5, 2]


def runs(sim, scenario, seeds, policies, load=1):
    """{policy: [row by seed]} of one scenario."""
    out = subprocess.run([sim, "--policy", ",".join(policies), "--load", str(load)] + (["--seeds", str(seeds)] if seeds else []) +
                         [os.path.join(HERE, "scenarios", scenario + ".scenario")], check=True, capture_output=True, text=True).stdout
    lines = [line.split("\t") for line in out.splitlines()]
    rows = [dict(zip(lines[0], line)) for line in lines[1:]]
    return {p: [r for r in rows if r["policy"] == p] for p in policies}


def numbers(rows, key):
    return [float(r[key]) for r in rows]


def ratios(table, a, b):
    return sorted(x / y for x, y in zip(numbers(table[a], "throughput"), numbers(table[b], "throughput")))


class Svg:
    """A plot area of 560 x 300 with axes; y grows upward."""

    def __init__(self, title, y_title, y_max):
        self.y_max = y_max
        self.parts = ['<text x="60" y="22" font-size="15">%s</text>' % title,
                      '<text x="16" y="190" transform="rotate(-90 16 190)" text-anchor="middle">%s</text>' % y_title]
        for i in range(6):
            value = y_max * i / 5
            self.parts.append('<path d="M60 %.1f H620" stroke="#ddd"/><text x="54" y="%.1f" text-anchor="end">%.3g</text>' %
                              (self.y(value), self.y(value) + 4, value))

    def y(self, value):
        return 340 - 300 * min(value, self.y_max) / self.y_max

    def legend(self, names):
        for i, name in enumerate(names):
            self.parts.append('<rect x="%d" y="372" width="12" height="12" fill="%s"/><text x="%d" y="382">%s</text>' %
                              (60 + 130 * i, COLOURS[name], 78 + 130 * i, name))

    def write(self, path):
        with open(path, "w") as file:
            file.write('<svg xmlns="http://www.w3.org/2000/svg" width="640" height="396" font-family="sans-serif" font-size="12">\n'
                       '<rect width="640" height="396" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def bars(path, title, y_title, groups):
    """groups: [(name, {policy: [values]})], drawn as the median with the range."""
    svg = Svg(title, y_title, 1.15 * max(max(v) for _, g in groups for v in g.values()))
    names = [p for p in POLICIES if p in groups[0][1]]
    width = 560 / len(groups)
    for i, (group, values) in enumerate(groups):
        bar = 0.8 * width / len(names)
        for k, name in enumerate(n for n in names if n in values):
            x = 60 + i * width + 0.1 * width + k * bar
            middle = statistics.median(values[name])
            svg.parts.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>' %
                             (x, svg.y(middle), bar * 0.9, 340 - svg.y(middle), COLOURS[name]))
            svg.parts.append('<path d="M%.1f %.1f V%.1f" stroke="black"/>' %
                             (x + bar * 0.45, svg.y(min(values[name])), svg.y(max(values[name]))))
        svg.parts.append('<text x="%.1f" y="358" text-anchor="middle">%s</text>' % (60 + (i + 0.5) * width, group))
    svg.legend(names)
    svg.write(path)


def lines(path, title, y_title, xs, series):
    svg = Svg(title, y_title, 1.1 * max(max(v) for v in series.values()))
    for i, x in enumerate(xs):
        svg.parts.append('<text x="%.1f" y="358" text-anchor="middle">%g</text>' % (60 + 560 * i / (len(xs) - 1), x))
    for name, values in series.items():
        points = ["%.1f %.1f" % (60 + 560 * i / (len(xs) - 1), svg.y(v)) for i, v in enumerate(values)]
        svg.parts.append('<path d="M%s" fill="none" stroke="%s" stroke-width="2"/>' % (" L".join(points), COLOURS[name]))
    svg.legend([p for p in POLICIES if p in series])
    svg.write(path)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.strip())
    sim, folder = sys.argv[1:3]
    seeds = int(sys.argv[3]) if len(sys.argv) == 4 else 0
    groups, slow = [], []
    print("| scenario | seeds | policy | throughput | slowdown | p95 | finished | refused | lost | prediction off by |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    tables = {}
    for scenario in ["mixed", "homogeneous", "large", "trouble", "liar"]:
        policies = [p for p in POLICIES if scenario != "large" or p != "oracle"]
        table = tables[scenario] = runs(sim, scenario, min(seeds, 3) if scenario == "large" else seeds, policies)
        for p in policies:
            rows = table[p]
            mean = lambda key: statistics.median(numbers(rows, key))
            print("| %s | %d | %s | %.2f (%.2f to %.2f) | %.2f | %.2f | %.0f | %.0f | %.0f | %s |" %
                  (scenario, len(rows), p, mean("throughput"), min(numbers(rows, "throughput")), max(numbers(rows, "throughput")),
                   mean("slowdown"), mean("slowdown_p95"), mean("finished"), mean("refused"), mean("lost"),
                   "-" if p == "oracle" else "%.0f%%" % (100 * mean("error"))))
        most = max(statistics.median(numbers(table[p], "throughput")) for p in policies)
        groups.append((scenario, {p: [v / most for v in numbers(table[p], "throughput")] for p in policies}))
        slow.append((scenario, {p: numbers(table[p], "slowdown") for p in policies}))
    bars(os.path.join(folder, "scheduler-throughput.svg"), "Throughput, best policy of a scenario = 1; bars: median, lines: all seeds",
         "relative throughput", groups)
    bars(os.path.join(folder, "scheduler-slowdown.svg"), "Mean slowdown of a program against the best server, idle", "slowdown", slow)
    print("\n| scenario | cost against | median | worst | best |\n| --- | --- | --- | --- | --- |")
    for scenario, table in tables.items():
        for other in POLICIES[1:]:
            if other in table:
                r = ratios(table, "cost", other)
                print("| %s | %s | %.3f | %.3f | %.3f |" % (scenario, other, statistics.median(r), r[0], r[-1]))
    series = {p: [] for p in POLICIES}
    print("\n| users against the scenario's | " + " | ".join(POLICIES) + " | cost / least-loaded | cost / round-robin | cost / oracle |")
    print("| --- |" + " --- |" * (len(POLICIES) + 3))
    for load in LOADS:
        table = runs(sim, "mixed", seeds, POLICIES, load)
        for p in POLICIES:
            series[p].append(statistics.median(numbers(table[p], "throughput")))
        print("| %g | " % load + " | ".join("%.2f" % series[p][-1] for p in POLICIES) + " | " +
              " | ".join("%.2f (%.2f)" % (statistics.median(ratios(table, "cost", o)), ratios(table, "cost", o)[0])
                         for o in POLICIES[1:]) + " |")
    lines(os.path.join(folder, "scheduler-load.svg"), "Mixed programs: throughput by load (1: one user a server)", "ideal seconds of work a second",
          LOADS, series)


main()
