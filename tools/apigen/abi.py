# SPDX-License-Identifier: Apache-2.0
"""The types of broker/proto/cuda_abi.h, as far as prototypes need them."""

import re

BUILTIN = {
	"void", "char", "int", "float", "size_t", "uint32_t", "uint64_t",
	"unsigned char", "unsigned short", "unsigned int", "unsigned long long",
}


class Abi:
	"""Names of types, which are enumerations, what aliases stand for, and which structs carry a stream."""

	def __init__(self, path):
		with open(path, encoding="utf-8") as file:
			text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
		self.names = set(BUILTIN)
		self.enums = set()
		self.results = set()
		self.alias = {}
		self.streams = set()
		self.handles = set() # pointers to what the driver alone knows
		self.functions = set()
		for body, name in re.findall(r"^typedef enum \w+ \{(.*?)^\} (\w+);", text, re.S | re.M):
			self.names.add(name)
			self.enums.add(name)
			if name == "CUresult":
				self.results.update(re.findall(r"^\t(\w+) =", body, re.M))
		for body, name in re.findall(r"^typedef (?:struct|union) \w+ \{(.*?)^\} (\w+);", text, re.S | re.M):
			self.names.add(name)
			if re.search(r"\bCUstream\b", body):
				self.streams.add(name)
		for name in re.findall(r"^typedef struct \w+ \*(\w+);", text, re.M):
			self.names.add(name)
			self.handles.add(name)
		for name in re.findall(r"^typedef [^;{]*?\(\*(\w+)\)\(", text, re.M):
			self.names.add(name)
			self.functions.add(name)
		for name in re.findall(r"^typedef int (\w+)\(", text, re.M):
			self.names.add(name)
		for target, name in re.findall(r"^typedef ((?:unsigned )?[\w ]+?) \*?(\w+);", text, re.M):
			self.names.add(name)
			self.alias[name] = target

	def known(self, base):
		return base in self.names

	def resolve(self, base):
		"""What a type is in the end: "enum", a builtin, or the name of a struct or handle."""
		seen = set()
		while base in self.alias and base not in seen and base not in ("CUdeviceptr", "CUdevice"):
			seen.add(base)
			base = self.alias[base]
		return "enum" if base in self.enums else base

	def is_address(self, base):
		return base in self.handles or base in self.functions or self.alias.get(base) in self.handles

	def carries_stream(self, base):
		return base == "CUstream" or base in self.streams or self.alias.get(base) in self.streams
