# SPDX-License-Identifier: Apache-2.0
"""reference.md: what becomes of each function, for readers."""

TRIPS = {
	"local": "no message",
	"async": "a message without reply; a failure is told later",
	"sync": "one round trip",
	"refuse": "refused with NOT_SUPPORTED",
}


def fate(description, entry):
	target = description.body(entry)
	if entry.get("same"):
		return f"as {target.name}"
	if entry.get("todo"):
		return "not built yet: refused with NOT_SUPPORTED"
	return TRIPS[entry.klass]


def section(description, entry):
	text = f"\n### {entry.name}\n\n{entry.get('doc')}\n\n"
	if entry.internal:
		text += f"- op {entry.op:#06x}, {TRIPS[entry.klass]}\n"
	else:
		text += f"```c\n{entry.get('proto')};\n```\n\n- {fate(description, entry)}\n"
		text += f"- cuGetProcAddress selects it from {version(entry.get('since'))}"
		if entry.variant:
			text += f"; {entry.variant[0]} from {version(entry.variant[2])}"
		text += "\n"
		if entry.op is not None:
			text += f"- op {entry.op:#06x}\n"
	why = entry.get("why") or entry.family.by.get(entry.get("by", ""))
	if why:
		text += f"- {why.rstrip('.')}\n"
	if entry.get("by") and not entry.get("todo"):
		text += f"- body: libgleamcuda/{entry.get('by')}\n"
	if entry.get("by_worker"):
		text += f"- at the worker: broker/worker/{entry.get('by_worker')}"
		text += ", not built yet\n" if entry.get("worker_todo") else "\n"
	if entry.scope:
		text += f"- in the order of the stream {entry.scope}\n"
	for arg in entry.args:
		text += f"- {arg}\n"
	if entry.get("errors"):
		text += f"- the library itself answers {', '.join(entry.get('errors'))}\n"
	if entry.op is not None:
		text += f"- {'may' if entry.get('again') == 'yes' else 'must not'} be repeated after a lost connection\n"
	return text


def version(number):
	return f"CUDA {number // 1000}.{number % 1000 // 10}"


def emit(description, out):
	functions = description.functions
	count = {}
	for entry in functions:
		target = description.body(entry)
		key = "refuse" if target.get("todo") else target.klass
		count[key] = count.get(key, 0) + len(entry.exports)
	text = "# The driver API, function by function\n\nMade by tools/apigen from libgleamcuda/api; change that.\n\n"
	text += "| class | exports |\n| --- | --- |\n"
	text += "".join(f"| {key}: {TRIPS[key]} | {count.get(key, 0)} |\n" for key in TRIPS)
	text += f"| all | {len(description.exports)} |\n"
	for family in description.families:
		text += f"\n## {family.title}\n"
		for entry in sorted(family.entries, key=lambda e: e.name):
			text += section(description, entry)
	out.write("reference.md", text)
