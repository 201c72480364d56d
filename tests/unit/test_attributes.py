#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of cuDeviceGetAttribute: what the generator says about wrong input, and that ours states what Gleam can do."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(TOP, "tools/apigen/attributes.py")
ABI = os.path.join(TOP, "broker/proto/cuda_abi.h")
OURS = os.path.join(TOP, "libgleamcuda/api/attributes.toml")
SMALL_ABI = """
	CU_DEVICE_ATTRIBUTE_A = 1,
	CU_DEVICE_ATTRIBUTE_B = 2,
	CU_DEVICE_ATTRIBUTE_MAX = 3,
"""


def generate(text, abi=SMALL_ABI):
	"""What the generator printed, and the file it made (None if none)."""
	with tempfile.TemporaryDirectory() as folder:
		for name, content in (("in.toml", text), ("abi.h", abi)):
			with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
				file.write(content)
		done = subprocess.run([sys.executable, "-B", TOOL, "--abi", os.path.join(folder, "abi.h"), "--out",
				       os.path.join(folder, "gen"), os.path.join(folder, "in.toml")],
				      capture_output=True, text=True, timeout=60)
		path = os.path.join(folder, "gen/attributes.c")
		made = None
		if os.path.exists(path):
			with open(path, encoding="utf-8") as file:
				made = file.read()
		return done.returncode, done.stderr, made


GOOD = '1 = { name = "A", state = "pass" }\n2 = { name = "B", state = "fix", value = -1, why = "so" }\n'


class Generator(unittest.TestCase):
	def test_right_input(self):
		code, error, made = generate(GOOD)
		self.assertEqual((code, error), (0, ""))
		self.assertIn("[1] = { ATTRIBUTE_PASS, 0 }", made)
		self.assertIn("[2] = { ATTRIBUTE_FIX, -1 }", made)

	def test_min(self):
		self.assertIn("[2] = { ATTRIBUTE_MIN, 7 }", generate(GOOD.replace('"fix", value = -1', '"min", value = 7'))[2])

	def wrong(self, text, line, message):
		code, error, made = generate(text)
		self.assertNotEqual(code, 0)
		self.assertIn(f"in.toml:{line}: ", error)
		self.assertIn(message, error)
		self.assertIsNone(made)

	def test_wrong_input_names_its_line(self):
		self.wrong(GOOD.replace('"A"', '"B"'), 1, "CU_DEVICE_ATTRIBUTE_B is 2")
		self.wrong(GOOD.replace('"B"', '"C"'), 2, "CU_DEVICE_ATTRIBUTE_C is unknown")
		self.wrong(GOOD.replace('"pass"', '"maybe"'), 1, "state must be one of")
		self.wrong(GOOD.replace("value = -1, ", ""), 2, "needs a value")
		self.wrong(GOOD.replace("value = -1", "value = 4294967296"), 2, "needs a value of 32 bits")
		self.wrong(GOOD.replace(', why = "so"', ""), 2, "needs a reason")
		self.wrong(GOOD.replace('"pass"', '"pass", value = 1'), 1, "pass takes no value")
		self.wrong(GOOD.replace('"pass"', '"pass", colour = 1'), 1, "unknown key 'colour'")
		self.wrong(GOOD + '151 = { name = "A", state = "pass" }\n', 3, "is no attribute number")
		self.wrong(GOOD + 'x = { name = "A", state = "pass" }\n', 3, "is no attribute number")

	def test_missing_entry(self):
		code, error, _ = generate(GOOD.splitlines()[0])
		self.assertNotEqual(code, 0)
		self.assertIn("no entry for attribute 2", error)

	def test_no_toml(self):
		code, error, _ = generate("1 = {")
		self.assertNotEqual(code, 0)
		self.assertIn("in.toml", error)


class Ours(unittest.TestCase):
	# What the design says can't be offered.
	ZERO = [86, 88, 89, 100, 101, 110, 116, 117, 118, 124, 125, 128, 132]

	def test_states_what_gleam_can_do(self):
		with open(OURS, encoding="utf-8") as file, open(ABI, encoding="utf-8") as abi:
			code, error, made = generate(file.read(), abi.read())
		self.assertEqual((code, error), (0, ""))
		rules = dict(re.findall(r"\[(\d+)\] = \{ (\w+, -?\d+) \}", made))
		self.assertEqual(sorted(map(int, rules)), list(range(1, 148)))
		for number in self.ZERO:
			self.assertEqual(rules[str(number)], "ATTRIBUTE_FIX, 0", number)
		# What programs choose their kernels by must be the card's own.
		for number in (1, 8, 10, 16, 39, 75, 76, 81, 82, 97, 106, 111):
			self.assertEqual(rules[str(number)], "ATTRIBUTE_PASS, 0", number)


if __name__ == "__main__":
	unittest.main()
