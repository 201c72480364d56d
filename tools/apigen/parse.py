# SPDX-License-Identifier: Apache-2.0
"""Reads the description: entries with the source line of each key, so that every complaint can name one."""

import os
import re
import tomllib

from wire import arg_parse

KEYS = {
	"proto": str, "since": int, "base": str, "ptsz": int, "ptds": int, "class": str, "op": int, "scope": str,
	"needs": str, "args": list, "doc": str, "by": str, "by_worker": str, "why": str, "worker_why": str,
	"again": str, "errors": list, "internal": bool, "same": str, "todo": bool, "worker_todo": bool, "undo": str,
}
FAMILY_KEYS = {"title": str, "by": dict, "by_worker": dict, "drv": list}


class Errors:
	"""Everything found wrong, as file:line: message."""

	def __init__(self):
		self.list = []

	def add(self, path, line, message):
		self.list.append((path, line, message))

	def __bool__(self):
		return bool(self.list)

	def lines(self):
		return [f"{path}:{line}: {message}" for path, line, message in sorted(set(self.list))]


class Param:
	"""One parameter of a prototype."""

	def __init__(self, text):
		match = re.fullmatch(r"(.*?[\s*])(\w+)", text.strip())
		self.name = match.group(2) if match else ""
		self.type = match.group(1).strip() if match else text.strip()

	@property
	def base(self):
		return re.sub(r"\bconst\b|\*", "", self.type).strip()

	@property
	def depth(self):
		return self.type.count("*")

	@property
	def pointee(self):
		"""The type behind one pointer, as a variable of it is declared."""
		text = self.type[: self.type.rindex("*")].strip()
		return text if self.depth > 1 else text.removeprefix("const ").strip()

	def declare(self):
		return f"{self.type}{'' if self.type.endswith('*') else ' '}{self.name}"


class Entry:
	"""One table of a family file."""

	def __init__(self, family, name, keys, source):
		self.family = family
		self.name = name
		self.keys = keys
		self.path = source.path
		self.source = source
		self.line = source.line(name)
		self.params = []
		self.args = []

	def get(self, key, default=None):
		return self.keys.get(key, default)

	def at(self, key):
		return self.source.line(self.name, key)

	@property
	def internal(self):
		return self.get("internal", False)

	@property
	def base(self):
		return self.get("base", self.name)

	@property
	def op(self):
		return self.get("op")

	@property
	def klass(self):
		return self.get("class")

	@property
	def scope(self):
		return self.get("scope")

	@property
	def variant(self):
		"""The per-thread export: (name, kind, since), or None."""
		for kind in ("ptsz", "ptds"):
			if kind in self.keys:
				return f"{self.name}_{kind}", kind, self.keys[kind]
		return None

	@property
	def exports(self):
		return [self.name] + ([self.variant[0]] if self.variant else [])

	@property
	def fields(self):
		"""What a command carries: in arguments, and the handles that the client made."""
		return [arg for arg in self.args if arg.direction == "in" or arg.is_birth]

	@property
	def answers(self):
		"""What a reply carries."""
		return [arg for arg in self.args if arg.direction == "out" and not arg.is_birth]

	def param(self, name):
		return next((param for param in self.params if param.name == name), None)

	def arg(self, name):
		return next((arg for arg in self.args if arg.name == name), None)

	def signature(self):
		return ", ".join(param.declare() for param in self.params) or "void"


class Source:
	"""The text of a file, to find lines in."""

	def __init__(self, path, text):
		self.path = path
		self.lines = {}
		self.spans = {}
		section = ""
		last = None
		for number, line in enumerate(text.splitlines(), 1):
			if match := re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line):
				section = match.group(1).strip()
				self.lines.setdefault((section, None), number)
				last = None
			elif match := re.match(r'\s*("?)([\w.]+)\1\s*=', line):
				last = (section, match.group(2))
				self.lines.setdefault(last, number)
			if last:
				self.spans.setdefault(last, []).append((number, line))

	def line(self, section, key=None):
		return self.lines.get((section, key)) or self.lines.get((section, None)) or 1

	def line_of_text(self, section, key, text):
		for number, line in self.spans.get((section, key), []):
			if f'"{text}"' in line:
				return number
		return self.line(section, key)


class Family:
	"""One file."""

	def __init__(self, name, path, table, source):
		self.name = name
		self.path = path
		self.source = source
		self.title = table.get("title", name)
		self.by = table.get("by", {})
		self.by_worker = table.get("by_worker", {})
		self.drv = table.get("drv", [])
		self.entries = []


def params_split(text):
	text = text.strip()
	return [] if text in ("", "void") else [Param(part) for part in text.split(",")]


def entry_parse(entry, errors):
	for key, value in entry.keys.items():
		if key not in KEYS:
			errors.add(entry.path, entry.at(key), f"{entry.name}: unknown key {key}")
		elif type(value) is not KEYS[key]:
			errors.add(entry.path, entry.at(key), f"{entry.name}: {key} has to be {KEYS[key].__name__}")
	if type(proto := entry.get("proto")) is str:
		match = re.fullmatch(r"CUresult (\w+)\((.*)\)", proto)
		if not match:
			errors.add(entry.path, entry.at("proto"), f"{entry.name}: proto is not CUresult {entry.name}(...)")
		elif match.group(1) != entry.name:
			errors.add(entry.path, entry.at("proto"), f"{entry.name}: proto declares {match.group(1)}")
		else:
			entry.params = params_split(match.group(2))
	if type(args := entry.get("args", [])) is list:
		for text in args:
			line = entry.source.line_of_text(entry.name, "args", text)
			arg = arg_parse(text, line) if type(text) is str else "args holds something that is no string"
			if type(arg) is str:
				errors.add(entry.path, line, f"{entry.name}: {arg}")
			else:
				entry.args.append(arg)


def family_parse(path, errors):
	with open(path, encoding="utf-8") as file:
		text = file.read()
	source = Source(path, text)
	name = os.path.basename(path).removesuffix(".toml")
	try:
		tables = tomllib.loads(text)
	except tomllib.TOMLDecodeError as wrong:
		match = re.match(r"(.*) \(at line (\d+), column \d+\)", str(wrong))
		message, line = (match.group(1), int(match.group(2))) if match else (str(wrong), len(text.splitlines()))
		errors.add(path, line, message)
		return Family(name, path, {}, source)
	head = tables.pop("family", {})
	for key, value in head.items():
		if key not in FAMILY_KEYS:
			errors.add(path, source.line("family", key), f"family: unknown key {key}")
		elif type(value) is not FAMILY_KEYS[key]:
			errors.add(path, source.line("family", key), f"family: {key} has to be {FAMILY_KEYS[key].__name__}")
	family = Family(name, path, head, source)
	if "title" not in head:
		errors.add(path, source.line("family"), "family: title is missing")
	for key, value in tables.items():
		if type(value) is not dict:
			errors.add(path, source.line("", key), f"{key} stands outside of every entry")
			continue
		entry = Entry(family, key, value, source)
		entry_parse(entry, errors)
		family.entries.append(entry)
	return family


class Description:
	"""All families; entries in alphabetical order."""

	def __init__(self, paths, errors):
		self.families = [family_parse(path, errors) for path in sorted(paths)]
		self.entries = sorted((e for f in self.families for e in f.entries), key=lambda e: e.name)
		self.by_name = {entry.name: entry for entry in self.entries}

	@property
	def functions(self):
		return [entry for entry in self.entries if not entry.internal]

	@property
	def ops(self):
		return sorted((e for e in self.entries if e.op is not None), key=lambda e: e.op)

	@property
	def exports(self):
		return sorted(name for entry in self.functions for name in entry.exports)

	def body(self, entry):
		"""The entry whose do_ function serves this one."""
		return self.by_name[entry.get("same")] if entry.get("same") else entry
