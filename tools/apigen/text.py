# SPDX-License-Identifier: Apache-2.0
"""Writing of generated files: heads, line breaks, and only what has changed."""

import os

MADE = "Made by tools/apigen from libgleamcuda/api; change that."
WIDTH = 118


def head(what):
	return f"/* SPDX-License-Identifier: Apache-2.0 */\n/* {MADE} {what} */\n"


def guard(name, body, what):
	return f"{head(what)}#ifndef {name}\n#define {name}\n\n{body}\n#endif\n"


def quoted(text):
	return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def wrapped(start, parts, end, indent):
	"""start + parts joined by ", " + end, broken where a line would be too long."""
	lines = [start]
	for index, part in enumerate(parts):
		last = index == len(parts) - 1
		piece = part + (end if last else ",")
		space = "" if lines[-1].endswith(("(", "\t")) else " "
		if len(lines[-1].expandtabs(8)) + len(space) + len(piece) > WIDTH:
			lines.append(indent + piece)
		else:
			lines[-1] += space + piece
	if not parts:
		lines[-1] += end
	return "\n".join(lines)


class Output:
	"""A folder; files that come out as they were keep their time, so that nothing is compiled again for them."""

	def __init__(self, folder):
		self.folder = folder
		self.names = []

	def write(self, name, text):
		path = os.path.join(self.folder, name)
		self.names.append(name)
		try:
			with open(path, encoding="utf-8") as file:
				if file.read() == text:
					return
		except FileNotFoundError:
			pass
		os.makedirs(self.folder, exist_ok=True)
		with open(path + ".new", "w", encoding="utf-8") as file:
			file.write(text)
		os.replace(path + ".new", path)
