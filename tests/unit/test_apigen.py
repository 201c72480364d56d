#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The generator: what it says about wrong input, what it makes of right input, and that the description is whole."""
# time-limit: 180

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(TOP, "tools/apigen/apigen.py")
DATA = os.path.join(TOP, "tests/apigen")
API = os.path.join(TOP, "libgleamcuda/api")
sys.path.insert(0, os.path.join(TOP, "tools/apigen"))
sys.dont_write_bytecode = True

import emit_procaddr  # noqa: E402
from parse import Description, Errors  # noqa: E402

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
FLAGS = ("-std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Werror -fPIC "
	 "-fvisibility=hidden -fno-strict-aliasing -fno-common -D_GNU_SOURCE").split()


def apigen(*arguments):
	return subprocess.run([sys.executable, "-B", TOOL, *arguments], capture_output=True, text=True, timeout=60)


def families(folder):
	return sorted(os.path.join(folder, name) for name in os.listdir(folder)
		      if name.endswith(".toml") and name != "attributes.toml")


def table(name):
	with open(os.path.join(DATA, name), encoding="utf-8") as file:
		return [line.split() for line in file if not line.startswith("#")]


class Wrong(unittest.TestCase):
	def test_each_wrong_input_names_its_line(self):
		paths = families(os.path.join(DATA, "wrong"))
		self.assertGreater(len(paths), 60)
		for path in paths:
			with self.subTest(os.path.basename(path)):
				with open(path, encoding="utf-8") as file:
					marked = [(number, line) for number, line in enumerate(file, 1) if "# error: " in line]
				self.assertEqual(len(marked), 1)
				number, line = marked[0]
				want = line.split("# error: ")[1].strip()
				# An empty root: no hand-written file exists there.
				result = apigen("--check", "--root", os.path.join(DATA, "wrong"), path)
				self.assertEqual(result.returncode, 1)
				said = result.stderr.splitlines()
				self.assertTrue(any(text.startswith(f"{path}:{number}: ") and want in text for text in said),
						f"wanted :{number}: {want}, got {said}")
				self.assertFalse([text for text in said if not re.match(r"[^:]+:\d+: ", text)])


class Lock(unittest.TestCase):
	ENTRY = """[family]
title = "Lock"

[cuStreamSynchronize]
proto   = "CUresult cuStreamSynchronize(CUstream hStream)"
since   = 2000
class   = "sync"
op      = OP
args    = ["in hStream : stream"]
doc     = "Wait."
"""

	def setUp(self):
		self.folder = tempfile.mkdtemp()
		self.path = os.path.join(self.folder, "lock.toml")
		self.addCleanup(shutil.rmtree, self.folder)

	def write(self, text):
		with open(self.path, "w", encoding="utf-8") as file:
			file.write(text)

	def test_numbers_are_permanent(self):
		first = self.ENTRY.replace("OP", "0x0301")
		self.write(first)
		result = apigen("--check", self.path)
		self.assertIn(f"{self.path}:8: cuStreamSynchronize: op 0x0301 is not in numbers.lock", result.stderr)
		self.assertEqual(apigen("--lock", self.path).returncode, 0)
		self.assertEqual(apigen("--check", self.path).returncode, 0)
		self.write(self.ENTRY.replace("OP", "0x0302"))
		for mode in ("--check", "--lock"):
			result = apigen(mode, self.path)
			self.assertEqual(result.returncode, 1)
			self.assertIn(":8: cuStreamSynchronize: op was 0x0301 and is permanent", result.stderr)
		self.write(first.replace("cuStreamSynchronize", "cuStreamQuery"))
		result = apigen("--lock", self.path)
		self.assertIn(":8: cuStreamQuery: op 0x0301 belonged to cuStreamSynchronize; take a new one", result.stderr)

	def test_removed_entries_keep_their_number(self):
		self.write(self.ENTRY.replace("OP", "0x0301"))
		apigen("--lock", self.path)
		self.write(self.ENTRY.replace("OP", "0x0302").replace("cuStreamSynchronize", "cuStreamQuery"))
		self.assertEqual(apigen("--lock", self.path).returncode, 0)
		with open(os.path.join(self.folder, "numbers.lock"), encoding="utf-8") as file:
			self.assertEqual(re.findall(r"^0x.*", file.read(), re.M), ["0x0301 cuStreamSynchronize", "0x0302 cuStreamQuery"])

	def test_a_broken_lock_names_its_line(self):
		self.write(self.ENTRY.replace("OP", "0x0301"))
		with open(os.path.join(self.folder, "numbers.lock"), "w", encoding="utf-8") as file:
			file.write("0x0301 cuStreamSynchronize\n0x0301 cuStreamQuery\nnonsense\n")
		said = apigen("--check", self.path).stderr
		self.assertIn("numbers.lock:2: 0x0301 cuStreamQuery repeats a number or a name", said)
		self.assertIn('numbers.lock:3: "nonsense" is not', said)

	def test_the_hash_follows_fields_but_not_prose(self):
		def digest(text):
			self.write(text)
			apigen("--lock", self.path)
			self.assertEqual(apigen("--out", self.folder, self.path).returncode, 0)
			with open(os.path.join(self.folder, "ops.h"), encoding="utf-8") as file:
				return re.search(r"PROTOCOL_HASH (.*?)\n\n", file.read(), re.S).group(1)

		first = self.ENTRY.replace("OP", "0x0301")
		self.assertEqual(digest(first), digest(first.replace("Wait.", "Wait for a stream.")))
		self.assertNotEqual(digest(first), digest(first.replace(": stream", ": stream null-ok")))


class Whole(unittest.TestCase):
	"""The description of the API."""

	@classmethod
	def setUpClass(cls):
		errors = Errors()
		cls.description = Description(families(API), errors)
		assert not errors, errors.lines()
		cls.folder = tempfile.mkdtemp()
		cls.gen = os.path.join(cls.folder, "gen")
		cls.result = apigen("--out", cls.gen, *families(API))

	@classmethod
	def tearDownClass(cls):
		shutil.rmtree(cls.folder)

	def test_it_has_no_mistakes(self):
		self.assertEqual((self.result.returncode, self.result.stderr), (0, ""))

	def test_exactly_the_driver_s_names_are_exported(self):
		names = [row[0] for row in table("exports.txt")]
		self.assertEqual(len(names), 675)
		self.assertEqual(self.description.exports, sorted(names))

	def test_versions_are_the_driver_s(self):
		known = {name: (base, int(since), kind) for name, base, since, kind in table("exports.txt")}
		for base, name, since, kind in emit_procaddr.rows(self.description):
			self.assertEqual((base, since, kind), known[name], name)

	def test_every_question_of_cudart_gets_its_export(self):
		rows = emit_procaddr.rows(self.description)
		questions = table("questions.txt")
		self.assertGreater(len(questions), 430)
		for base, version, flags, want in questions:
			got = emit_procaddr.choose(rows, base, int(version), int(flags) == 2)
			self.assertEqual(got or "-", want, (base, version, flags))

	def test_every_name_that_libraries_look_up_is_exported(self):
		exports = set(self.description.exports)
		names = [row[0] for row in table("looked-up.txt")]
		self.assertGreater(len(names), 80)
		self.assertFalse([name for name in names if name not in exports])

	def test_all_of_it_compiles_without_warnings(self):
		self.assertTrue(COMPILERS)
		files = sorted(name for name in os.listdir(self.gen) if name.endswith(".c"))
		for compiler in COMPILERS:
			for name in files:
				if name == "test_codec.c":
					continue
				result = subprocess.run([compiler, *FLAGS, "-I", TOP, "-I", self.folder, "-c", os.path.join(self.gen, name),
							 "-o", os.path.join(self.folder, name + ".o")], capture_output=True, text=True, timeout=120)
				self.assertEqual((result.returncode, result.stderr), (0, ""), (compiler, name))
		symbols = subprocess.run(["nm", "-g", "--defined-only"] + [os.path.join(self.folder, name + ".o") for name in files
					 if name.startswith("stubs_")], capture_output=True, text=True, timeout=60).stdout
		defined = re.findall(r" T (cu\w+)$", symbols, re.M)
		self.assertEqual(sorted(defined), self.description.exports)

	def test_nothing_is_written_again_that_did_not_change(self):
		path = os.path.join(self.gen, "msg.h")
		before = os.stat(path).st_mtime_ns, os.stat(path).st_ino
		self.assertEqual(apigen("--out", self.gen, *families(API)).returncode, 0)
		self.assertEqual((os.stat(path).st_mtime_ns, os.stat(path).st_ino), before)


class Loopback(unittest.TestCase):
	"""Generated stubs and dispatch of a small description, wired to each other and to a driver that keeps notes."""

	def test_stubs_reach_the_driver_and_back(self):
		for compiler in COMPILERS:
			with self.subTest(compiler), tempfile.TemporaryDirectory() as folder:
				gen = os.path.join(folder, "gen")
				result = apigen("--out", gen, *families(os.path.join(DATA, "good")))
				self.assertEqual((result.returncode, result.stderr), (0, ""))
				program = os.path.join(folder, "loopback")
				sources = [os.path.join(gen, name) for name in ("ops.c", "api.c", "dispatch.c", "stubs_sample.c", "procaddr.c")]
				flags = [*FLAGS, "-Wno-unused-parameter", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
				result = subprocess.run([compiler, *flags, "-I", TOP, "-I", folder, os.path.join(DATA, "loopback.c"), *sources,
							 "-o", program, "-lcmocka"], capture_output=True, text=True, timeout=120)
				self.assertEqual((result.returncode, result.stderr), (0, ""))
				result = subprocess.run([program], capture_output=True, text=True, timeout=60)
				self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

	def test_a_driver_that_lacks_functions_is_still_loaded(self):
		with tempfile.TemporaryDirectory() as folder:
			gen = os.path.join(folder, "gen")
			self.assertEqual(apigen("--out", gen, *families(os.path.join(DATA, "good"))).returncode, 0)
			driver, loader = os.path.join(folder, "driver.so"), os.path.join(folder, "loader.so")
			with open(os.path.join(folder, "driver.c"), "w", encoding="utf-8") as file:
				file.write("int cuEventCreate(void **event, unsigned flags) { *event = (void *)16; return (int)flags; }\n")
			with open(os.path.join(folder, "loader.c"), "w", encoding="utf-8") as file:
				file.write('#include <dlfcn.h>\n#include "gen/drv.h"\nint try(const char *path, int *there, int *lacking);\n'
					   "int try(const char *path, int *there, int *lacking)\n{\n\tstruct drv drv;\n\tCUevent event;\n"
					   "\tint missing = drv_load(&drv, dlopen(path, RTLD_NOW));\n"
					   "\t*there = (int)drv.cuEventCreate(&event, 7);\n\t*lacking = (int)drv.cuEventQuery(event);\n"
					   "\treturn missing;\n}\n")
			compiler = [COMPILERS[0], "-shared", "-fPIC", "-I", TOP, "-I", folder]
			subprocess.run([*compiler, os.path.join(folder, "driver.c"), "-o", driver], check=True, timeout=60)
			subprocess.run([*compiler, os.path.join(folder, "loader.c"), os.path.join(gen, "drv.c"), "-o", loader],
				       check=True, timeout=60)
			there, lacking = ctypes.c_int(), ctypes.c_int()
			missing = ctypes.CDLL(loader)["try"](driver.encode(), ctypes.byref(there), ctypes.byref(lacking))
			with open(os.path.join(gen, "drv.h"), encoding="utf-8") as file:
				self.assertEqual(missing, len(re.findall("__typeof__", file.read())) - 1)
			self.assertEqual((there.value, lacking.value), (7, 500))


if __name__ == "__main__":
	unittest.main()
