#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A strict reader of OpenMetrics 1.0 text: `openmetrics.py FILE` says what is wrong with which line, or how many samples
there are. Written from the specification; what it forbids or calls invalid is an error here."""
import math
import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?[iI][nN][fF](inity)?|[nN][aA][nN]")
SUFFIXES = {
    "counter": ("_total", "_created"),
    "summary": ("", "_count", "_sum", "_created"),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "gaugehistogram": ("_bucket", "_gcount", "_gsum"),
    "info": ("_info",),
    "gauge": ("",),
    "stateset": ("",),
    "unknown": ("",),
}


class Wrong(Exception):
    pass


def sample_read(line):
    """Name, labels, value of a sample line."""
    match = NAME.match(line)
    if not match:
        raise Wrong("no metric name")
    name, at, labels = match.group(), match.end(), {}
    if line[at : at + 1] == "{":
        at += 1
        while line[at : at + 1] != "}":
            match = LABEL.match(line, at)
            if not match or line[match.end() : match.end() + 2] != '="':
                raise Wrong("a label is not NAME=\"VALUE\"")
            label, at, value = match.group(), match.end() + 2, ""
            while line[at : at + 1] != '"':
                if at >= len(line):
                    raise Wrong("a label's value has no end")
                if line[at] == "\\":
                    escape = line[at + 1 : at + 2]
                    if escape not in ("n", "\\", '"') or not escape:
                        raise Wrong("a wrong escape in a label")
                    value += "\n" if escape == "n" else escape
                    at += 2
                else:
                    value += line[at]
                    at += 1
            at += 1
            if label in labels:
                raise Wrong("label %s twice" % label)
            labels[label] = value
            if line[at : at + 1] == ",":
                at += 1
                if line[at : at + 1] == "}":
                    raise Wrong("a comma before }")
            elif line[at : at + 1] != "}":
                raise Wrong("no comma between labels")
        at += 1
    if line[at : at + 1] != " ":
        raise Wrong("no space before the value")
    rest = line[at + 1 :].split(" # ", 1)[0].split(" ")
    if len(rest) > 2 or not all(NUMBER.fullmatch(part) for part in rest):
        raise Wrong("not a value and perhaps a time: %r" % line[at + 1 :])
    return name, labels, float(rest[0])


def check(text):
    """Families {name: (type, [(sample name, labels, value)])}; raises Wrong with the line."""
    families, order, seen = {}, [], set()
    if not text.endswith("# EOF\n"):
        raise Wrong("does not end with # EOF and a newline")
    lines = text[:-1].split("\n")
    current = None
    for number, line in enumerate(lines, 1):
        try:
            if line == "# EOF":
                if number != len(lines):
                    raise Wrong("something behind # EOF")
                break
            if line.startswith("#"):
                parts = line.split(" ", 3)
                if len(parts) < 4 or parts[0] != "#" or parts[1] not in ("TYPE", "UNIT", "HELP"):
                    raise Wrong("not a # TYPE, # UNIT or # HELP line")
                kind, name, words = parts[1:]
                if not NAME.fullmatch(name):
                    raise Wrong("not a family's name")
                if name != current:
                    if name in families:
                        raise Wrong("family %s comes a second time" % name)
                    families[name], current = {"samples": []}, name
                    order.append(name)
                if kind in families[name]:
                    raise Wrong("%s twice" % kind)
                if families[name]["samples"]:
                    raise Wrong("metadata behind samples")
                families[name][kind] = words
                if kind == "TYPE" and words not in SUFFIXES:
                    raise Wrong("no such type")
                if kind == "UNIT" and not name.endswith("_" + words):
                    raise Wrong("the name does not end with the unit")
                if kind == "HELP" and "\\" in re.sub(r"\\[\\n\"]", "", words):
                    raise Wrong("a wrong escape in the help")
                continue
            name, labels, value = sample_read(line)
            family = families.get(current)
            kind = family.get("TYPE", "unknown") if family else None
            if family is None or name not in [current + suffix for suffix in SUFFIXES[kind]]:
                raise Wrong("sample %s is not of the family before it" % name)
            key = (name, tuple(sorted(labels.items())))
            if key in seen:
                raise Wrong("the same sample twice")
            seen.add(key)
            if kind == "counter" and (math.isnan(value) or value < 0):
                raise Wrong("a counter below 0")
            if kind == "info" and value != 1:
                raise Wrong("an info that is not 1")
            if kind == "info" and "UNIT" in family:
                raise Wrong("an info with a unit")
            if kind == "stateset" and (value not in (0, 1) or current not in labels):
                raise Wrong("a stateset's sample is 0 or 1 and has the label %s" % current)
            family["samples"].append((name, labels, value))
        except Wrong as wrong:
            raise Wrong("line %d: %s: %s" % (number, wrong, line)) from None
    # Names of samples may not clash with other families.
    for name in order:
        for suffix in SUFFIXES[families[name].get("TYPE", "unknown")]:
            if suffix and name + suffix in families:
                raise Wrong("family %s clashes with a sample of %s" % (name + suffix, name))
    return families


if __name__ == "__main__":
    try:
        found = check(open(sys.argv[1], encoding="utf-8", newline="").read())
    except (Wrong, UnicodeDecodeError) as wrong:
        sys.exit("%s: %s" % (sys.argv[1], wrong))
    for family in found.values():
        for sample, labels, value in family["samples"]:
            print(sample + "".join(" %s=%s" % pair for pair in sorted(labels.items())), "%.9g" % value)
