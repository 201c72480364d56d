#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the guides: text that is drawn with - | + > < ^ v becomes SVG. `picture.py FILE.txt` prints it.

A cell of the text is a cell of the picture, so the text is readable as it is. + joins lines; = is a thick line (shared
memory), ~ a dashed one (the network). An arrow head takes its direction from its letter and needs a line beside it.
"""
import html
import sys

W, H = 9, 18  # a cell
JOINS = {"left": "-=~+<>", "right": "-=~+<>", "up": "|+^v", "down": "|+^v"}


def cells(text):
    lines = [line.rstrip("\n").expandtabs(8) for line in text]
    lines = [line for line in lines if not line.startswith("#")]
    width = max(map(len, lines), default=0)
    return [line.ljust(width) for line in lines], width


def at(lines, x, y):
    return lines[y][x] if 0 <= y < len(lines) and 0 <= x < len(lines[y]) else " "


def is_line(lines, x, y):
    """Whether a letter that could be a word's is drawn: it has a line beside it where it points."""
    c = at(lines, x, y)
    left, right = at(lines, x - 1, y), at(lines, x + 1, y)
    up, down = at(lines, x, y - 1), at(lines, x, y + 1)
    if c == "|":
        return up in "|+^v" or down in "|+^v"
    if c == "+":
        return left in "-=~+" or right in "-=~+" or up in "|+" or down in "|+"
    if c in "-=~":
        return left in "-=~+<" or right in "-=~+>"
    if c == ">":
        return left in "-=~+"
    if c == "<":
        return right in "-=~+"
    if c == "^":
        return down in "|+"
    if c == "v":
        return up in "|+" and not (left.isalpha() or right.isalpha())
    return False


def svg(text):
    lines, width = cells(text)
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">'
        % ((width + 2) * W, (len(lines) + 1) * H, (width + 2) * W, (len(lines) + 1) * H),
        "<style>svg{background:#fff}path,polygon{stroke:#345;fill:none;stroke-width:1.5}polygon{fill:#345}"
        ".thick{stroke-width:4;stroke:#276}.dash{stroke-dasharray:6 4;stroke:#a42}"
        "text{font:14px ui-monospace,monospace;fill:#123;white-space:pre}</style>",
    ]
    for y in range(len(lines)):
        x = 0
        while x < width:
            c = at(lines, x, y)
            cx, cy = (x + 1.5) * W, (y + 1) * H
            if c == " ":
                x += 1
            elif is_line(lines, x, y):
                kind = {"=": ' class="thick"', "~": ' class="dash"'}.get(c, "")
                if c in "-=~":
                    # A run of one kind is one line.
                    end = x
                    while at(lines, end + 1, y) == c and is_line(lines, end + 1, y):
                        end += 1
                    out.append('<path%s d="M%g %gH%g"/>' % (kind, cx - W / 2, cy, (end + 1.5) * W + W / 2))
                    x = end
                elif c == "|":
                    out.append('<path d="M%g %gV%g"/>' % (cx, cy - H / 2, cy + H / 2))
                elif c == "+":
                    for side, dx, dy in (("left", -1, 0), ("right", 1, 0), ("up", 0, -1), ("down", 0, 1)):
                        if at(lines, x + dx, y + dy) in JOINS[side] and is_line(lines, x + dx, y + dy):
                            out.append('<path d="M%g %gL%g %g"/>' % (cx, cy, cx + dx * W / 2, cy + dy * H / 2))
                elif c in "<>":
                    d = 1 if c == ">" else -1
                    out.append('<polygon points="%g,%g %g,%g %g,%g"/>' % (cx + d * W / 2, cy, cx - d * W / 2, cy - 4, cx - d * W / 2, cy + 4))
                else:
                    d = 1 if c == "v" else -1
                    out.append('<polygon points="%g,%g %g,%g %g,%g"/>' % (cx, cy + d * H / 2, cx - 4, cy - d, cx + 4, cy - d))
                x += 1
            else:
                # A run of words, up to two spaces or a line.
                end = x
                while end + 1 < width and not (at(lines, end + 1, y) == " " and at(lines, end + 2, y) == " "):
                    if at(lines, end + 1, y) != " " and is_line(lines, end + 1, y):
                        break
                    end += 1
                words = lines[y][x : end + 1].rstrip()
                out.append('<text x="%g" y="%g" textLength="%g">%s</text>' % ((x + 1) * W, cy + 5, len(words) * W, html.escape(words)))
                x = end + 1
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: picture.py FILE.txt")
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.stdout.write(svg(file))
