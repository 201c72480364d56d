# SPDX-License-Identifier: Apache-2.0
"""numbers.lock: op numbers that were ever given away. They are never changed and never used again."""

import os
import re

HEAD = """# Op numbers, permanent: made by `tools/apigen/apigen.py --lock`. A line is never changed or removed, also when its
# entry goes: on the wire the number would mean something else to an older peer.
"""


def lock_read(path, errors):
	"""{number: name}"""
	numbers = {}
	if not os.path.exists(path):
		return numbers
	with open(path, encoding="utf-8") as file:
		for line, text in enumerate(file, 1):
			text = text.split("#", 1)[0].strip()
			if not text:
				continue
			match = re.fullmatch(r"(0x[0-9a-f]{4}) (\w+)", text)
			if not match:
				errors.add(path, line, f'"{text}" is not "0x0123 name"')
				continue
			number, name = int(match.group(1), 16), match.group(2)
			if number in numbers or name in numbers.values():
				errors.add(path, line, f"{text} repeats a number or a name")
			numbers[number] = name
	return numbers


def lock_check(description, numbers, path, errors, adding):
	"""Every op has its line, and the line is right. New ones are added when @adding."""
	by_name = {name: number for number, name in numbers.items()}
	for entry in description.ops:
		locked = numbers.get(entry.op)
		if entry.name in by_name and by_name[entry.name] != entry.op:
			errors.add(entry.path, entry.at("op"),
				   f"{entry.name}: op was {by_name[entry.name]:#06x} and is permanent ({os.path.basename(path)})")
		elif locked is not None and locked != entry.name:
			errors.add(entry.path, entry.at("op"), f"{entry.name}: op {entry.op:#06x} belonged to {locked}; take a new one")
		elif locked is None and not adding:
			errors.add(entry.path, entry.at("op"),
				   f"{entry.name}: op {entry.op:#06x} is not in {os.path.basename(path)}: run make apigen-lock")


def lock_write(path, description, numbers):
	numbers = numbers | {entry.op: entry.name for entry in description.ops}
	with open(path, "w", encoding="utf-8") as file:
		file.write(HEAD)
		for number in sorted(numbers):
			file.write(f"{number:#06x} {numbers[number]}\n")
