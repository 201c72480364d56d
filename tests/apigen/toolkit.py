#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the API description and cuda_abi.h with a CUDA toolkit: toolkit.py CUDA_HOME FOLDER

Both headers are asked by the compiler, never read for their meaning: a program prints sizes, offsets and values under
the one and under the other, and prototypes are declared again after the toolkit's own.
"""

import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tools/apigen"))

from parse import Description, Errors  # noqa: E402

ABI = os.path.join(TOP, "broker/proto/cuda_abi.h")
API = os.path.join(TOP, "libgleamcuda/api")
# What the toolkit's headers want of libraries that need not be installed; the same as in cuda_abi.h.
FOREIGN = {
	"GL/gl.h": "typedef unsigned int GLuint;\ntypedef unsigned int GLenum;\n",
	"EGL/egl.h": "typedef int EGLint;\ntypedef unsigned int EGLBoolean;\ntypedef void *EGLImageKHR;\n"
		     "typedef void *EGLStreamKHR;\ntypedef void *EGLSyncKHR;\n",
	"EGL/eglext.h": "",
	"vdpau/vdpau.h": "#include <stdint.h>\ntypedef uint32_t VdpDevice, VdpVideoSurface, VdpOutputSurface;\n"
			 "typedef int VdpGetProcAddress(VdpDevice, uint32_t, void **);\n",
}
THEIRS = "".join(f"#include <{name}>\n" for name in (
	"stddef.h", "stdint.h", "vdpau/vdpau.h", "cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"))
# Exports of the real driver that no header declares.
UNDECLARED = ("cuMemGetAttribute", "cuMemGetAttribute_v2", "cuEGLApiInit")
# The stub library is without graphics; the driver is not.
GRAPHICS = re.compile(r"cu(GL|EGL|VDPAU|GraphicsGL|GraphicsEGL|GraphicsVDPAU|GraphicsResourceGetMappedEglFrame|EventCreateFromEGLSync)")
# Macros that are no numbers: decorations, guards, and stand-ins for pointers.
MACROS_NOT_COMPARED = re.compile(r"CUDAAPI|CUDA_CB|CUDA(GL|EGL|VDPAU)_H|CUDA_PROFILER_H|CU_UUID_HAS_BEEN_DEFINED")

failures = []


def check(ok, message):
	if not ok:
		failures.append(message)


def compile_c(folder, name, text, home, *more):
	path = os.path.join(folder, name)
	with open(path, "w", encoding="utf-8") as file:
		file.write(text)
	return subprocess.run(["gcc", "-std=gnu11", "-w", "-I", os.path.join(folder, "foreign"), "-I", os.path.join(home, "include"),
			       "-I", TOP, "-D__CUDA_API_VERSION_INTERNAL", path, *more], capture_output=True, text=True, timeout=120)


def without_comments(path):
	with open(path, encoding="utf-8") as file:
		return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def members(body):
	"""Paths of all fields of a struct's body, through the structs and unions in it."""
	paths, depth, start = [], 0, 0
	for at, char in enumerate(body):
		depth += {"{": 1, "}": -1}.get(char, 0)
		if char != ";" or depth:
			continue
		text = body[start:at].strip()
		start = at + 1
		if match := re.fullmatch(r"(?:struct|union)\s*\w*\s*\{(.*)\}\s*(\w*)(?:\[\w+\])?", text, re.S):
			inner, name = members(match.group(1)), match.group(2)
			paths += ([name] if name else []) + [f"{name}.{path}" if name else path for path in inner
							     if "[" not in text.rsplit("}", 1)[1]]
		elif match := re.search(r"\(\*(\w+)\)\(|(\w+)(?:\[[^\]]*\])*$", text):
			paths.append(match.group(1) or match.group(2))
	return paths


def types(text):
	"""(kind, name, body) of the types of a header without comments, in the form that cuda_abi.h has."""
	found = re.findall(r"^typedef (enum|struct|union) \w+ \{\n(.*?)^\} (\w+);", text, re.S | re.M)
	return [(kind, name, body) for kind, body, name in found]


def facts_program(head, macros):
	text = without_comments(ABI)
	lines = ["#include <stdio.h>\n" + head, """
#define SIGN(x) _Generic((x), char: 'c', signed char: 's', short: 's', int: 's', long: 's', long long: 's', \\
	unsigned char: 'u', unsigned short: 'u', unsigned: 'u', unsigned long: 'u', unsigned long long: 'u', \\
	float: 'f', double: 'f', default: '-')
#define FIELD(T, f) printf(#T "." #f " at %zu, %zu bytes, %c\\n", offsetof(T, f), sizeof(((T *)0)->f), SIGN(((T *)0)->f))
#define TYPE(T) printf(#T " %zu bytes, aligned to %zu\\n", sizeof(T), _Alignof(T))
#define VALUE(v) printf(#v " = %lld\\n", (long long)(v))
int main(void)
{
"""]
	for kind, name, body in types(text):
		lines.append(f"\tTYPE({name});\n")
		if kind == "enum":
			lines += [f"\tVALUE({value});\n" for value in re.findall(r"^\t(\w+) =", body, re.M)]
		else:
			lines += [f"\tFIELD({name}, {path});\n" for path in members(body)]
	for name in re.findall(r"^typedef [^{}()]*?\*?(\w+);", text, re.M):
		lines.append(f"\tTYPE({name});\n")
	for name in re.findall(r"^typedef [^{}]*?\(\*(\w+)\)\(", text, re.M):
		lines.append(f"\tTYPE({name});\n")
	lines += [f"\tVALUE({name});\n" for name in macros]
	return "".join(lines) + "\treturn 0;\n}\n"


def facts(folder, home, which, head, macros):
	program = os.path.join(folder, which)
	result = compile_c(folder, which + ".c", facts_program(head, macros), home, "-o", program)
	check(result.returncode == 0, f"{which}: {result.stderr[:2000]}")
	if result.returncode:
		return []
	return subprocess.run([program], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def compare_types(folder, home):
	macros = re.findall(r"^#define (CU\w+) ", without_comments(ABI), re.M)
	ours = facts(folder, home, "ours", '#include "broker/proto/cuda_abi.h"\n', macros)
	theirs = facts(folder, home, "theirs", THEIRS, macros)
	check(len(ours) > 1900, f"only {len(ours)} facts were found in cuda_abi.h")
	check(len(ours) == len(theirs), f"{len(ours)} facts of ours, {len(theirs)} of the toolkit's")
	for mine, other in zip(ours, theirs):
		check(mine == other, f"cuda_abi.h: {mine}; toolkit: {other}")
	return len(ours)


def compare_completeness(folder, home):
	"""Nothing that the toolkit has is missing from ours."""
	text = without_comments(ABI)
	mine = set(re.findall(r"\b\w+\b", text))
	result = compile_c(folder, "expand.c", THEIRS, home, "-E", "-P")
	check(result.returncode == 0, result.stderr[:2000])
	start = result.stdout.find("typedef uint32_t cuuint32_t")
	count = 0
	for body in re.findall(r"typedef enum\s*\w*\s*\{(.*?)\}", result.stdout[start:], re.S):
		for name in re.findall(r"(?:^|,)\s*(\w+)", body):
			count += 1
			check(name in mine, f"cuda_abi.h lacks the value {name}")
	for name in re.findall(r"^(?:typedef .*?|\})\s*\*?(\w+);", result.stdout[start:], re.M):
		count += 1
		check(name in mine, f"cuda_abi.h lacks the type {name}")
	result = compile_c(folder, "macros.c", THEIRS, home, "-E", "-dM")
	for name in re.findall(r"^#define (CU(?:DA)?_\w+) \S", result.stdout, re.M):
		count += 1
		check(name in mine or MACROS_NOT_COMPARED.match(name), f"cuda_abi.h lacks the macro {name}")
	check(count > 1300, f"only {count} names were found in the toolkit's headers")
	return count


def compare_prototypes(folder, home, description):
	lines = [THEIRS]
	for entry in description.functions:
		for name in entry.exports:
			if name not in UNDECLARED:
				lines.append(f'_Static_assert(sizeof(&{name}) == 8, "declared");\nCUresult {name}({entry.signature()});\n')
	result = compile_c(folder, "prototypes.c", "".join(lines), home, "-fsyntax-only")
	for line in result.stderr.splitlines():
		if " error: " in line:
			check(False, line.split(" error: ")[1])
	check(result.returncode == 0, "prototypes differ")
	return len(lines) - 1


def compare_names(home, description):
	stub = os.path.join(home, "lib64/stubs/libcuda.so")
	if not os.path.exists(stub):
		print(f"no {stub}: names are not compared")
		return 0
	result = subprocess.run(["nm", "-D", "--defined-only", stub], capture_output=True, text=True, timeout=60, check=True)
	theirs = set(re.findall(r" T (cu[A-Z]\w+)$", result.stdout, re.M))
	mine = set(description.exports)
	for name in sorted(theirs - mine):
		check(False, f"{name} is in the stub library and not exported")
	for name in sorted(mine - theirs):
		check(GRAPHICS.match(name) or name in UNDECLARED, f"{name} is exported and not in the stub library")
	return len(theirs)


def main():
	home, folder = sys.argv[1], sys.argv[2]
	for name, text in FOREIGN.items():
		path = os.path.join(folder, "foreign", name)
		os.makedirs(os.path.dirname(path), exist_ok=True)
		with open(path, "w", encoding="utf-8") as file:
			file.write(text)
	errors = Errors()
	description = Description([os.path.join(API, name) for name in os.listdir(API)
				   if name.endswith(".toml") and name != "attributes.toml"], errors)
	check(not errors, "\n".join(errors.lines()))
	counts = (compare_types(folder, home), compare_completeness(folder, home),
		  compare_prototypes(folder, home, description), compare_names(home, description))
	for message in failures[:40]:
		print(message)
	print("%d facts and %d names of types, %d prototypes, %d exports compared; " % counts + f"{len(failures)} differ")
	return 1 if failures else 0


if __name__ == "__main__":
	sys.exit(main())
