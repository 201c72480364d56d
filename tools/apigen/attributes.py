#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gen/attributes.c, the rules of cuDeviceGetAttribute, from libgleamcuda/api/attributes.toml.

usage: attributes.py --abi broker/proto/cuda_abi.h --out DIR attributes.toml
"""

import argparse
import os
import re
import sys
import tomllib

NUMBER_MAX = 150  # SNAPSHOT_ATTRIBUTES - 1
STATES = {"pass": "ATTRIBUTE_PASS", "fix": "ATTRIBUTE_FIX", "min": "ATTRIBUTE_MIN"}
ALLOWED = {"name", "state", "value", "why"}


class Wrong(Exception):
	"""A mistake in the description, with its line."""


def line_of(text, key):
	for number, line in enumerate(text.splitlines(), 1):
		if re.match(rf"\s*{re.escape(key)}\s*=", line):
			return number
	return 0


def abi_numbers(text):
	"""The numbers that the header of types gives CU_DEVICE_ATTRIBUTE_X."""
	return {name: int(number, 0) for name, number in re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+)\s*=\s*(\w+)", text)}


def check(key, entry, numbers):
	if not key.isdigit() or not 1 <= int(key) <= NUMBER_MAX:
		raise Wrong(f"'{key}' is no attribute number (1 to {NUMBER_MAX})")
	if not isinstance(entry, dict):
		raise Wrong(f"{key}: expected {{ name = ..., state = ... }}")
	unknown = set(entry) - ALLOWED
	if unknown:
		raise Wrong(f"{key}: unknown key '{sorted(unknown)[0]}'")
	if entry.get("state") not in STATES:
		raise Wrong(f"{key}: state must be one of {', '.join(STATES)}")
	if numbers.get(entry.get("name")) != int(key):
		raise Wrong(f"{key}: CU_DEVICE_ATTRIBUTE_{entry.get('name')} is {numbers.get(entry.get('name'), 'unknown')}")
	if entry["state"] == "pass":
		if "value" in entry:
			raise Wrong(f"{key}: pass takes no value")
		return
	if not isinstance(entry.get("value"), int) or not -(2**31) <= entry["value"] < 2**31:
		raise Wrong(f"{key}: {entry['state']} needs a value of 32 bits")
	if not entry.get("why"):
		raise Wrong(f"{key}: {entry['state']} needs a reason (why)")


def emit(entries):
	lines = [
		"/* SPDX-License-Identifier: Apache-2.0 */",
		"/* Made by tools/apigen/attributes.py from libgleamcuda/api/attributes.toml; change that. */",
		'#include "libgleamcuda/device.h"',
		"",
		"const struct attribute_rule attribute_rules[SNAPSHOT_ATTRIBUTES] = {",
	]
	for number, entry in sorted((int(key), entry) for key, entry in entries.items()):
		lines.append(f"\t[{number}] = {{ {STATES[entry['state']]}, {entry.get('value', 0)} }}, /* {entry['name']} */")
	lines.append("};")
	return "\n".join(lines) + "\n"


def main():
	parser = argparse.ArgumentParser()
	parser.add_argument("--abi", required=True)
	parser.add_argument("--out", required=True)
	parser.add_argument("description")
	options = parser.parse_args()
	with open(options.description, encoding="utf-8") as file:
		text = file.read()
	with open(options.abi, encoding="utf-8") as file:
		numbers = abi_numbers(file.read())
	try:
		entries = tomllib.loads(text)
	except tomllib.TOMLDecodeError as error:
		sys.exit(f"{options.description}: {error}")
	for key, entry in entries.items():
		try:
			check(key, entry, numbers)
		except Wrong as error:
			sys.exit(f"{options.description}:{line_of(text, key)}: {error}")
	missing = sorted(set(numbers.values()) - {int(key) for key in entries} - {numbers.get("MAX")})
	if missing:
		sys.exit(f"{options.description}: no entry for attribute {missing[0]}")
	os.makedirs(options.out, exist_ok=True)
	with open(os.path.join(options.out, "attributes.c"), "w", encoding="utf-8") as file:
		file.write(emit(entries))


if __name__ == "__main__":
	main()
