#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes both ends of the wire from the description of the API: docs/api-description.md tells what and how.

	apigen.py --out DIR FILE.toml...	generate
	apigen.py --lock FILE.toml...		record the numbers of new ops
	apigen.py --check FILE.toml...		look, and write nothing
"""

import argparse
import os
import sys

import check
import emit_api
import emit_dispatch
import emit_drv
import emit_msg
import emit_ops
import emit_print
import emit_procaddr
import emit_reference
import emit_stubs
import emit_test
import emit_trace
import lock
from abi import Abi
from parse import Description, Errors
from text import Output

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EMITTERS = (
	emit_ops, emit_msg, emit_api, emit_stubs, emit_procaddr, emit_drv, emit_dispatch, emit_print, emit_trace, emit_test, emit_reference,
)


def main():
	parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	what = parser.add_mutually_exclusive_group(required=True)
	what.add_argument("--out", help="folder for the generated files")
	what.add_argument("--lock", action="store_true", help="write the numbers of new ops into numbers.lock")
	what.add_argument("--check", action="store_true", help="only look for mistakes")
	parser.add_argument("--abi", default=os.path.join(ROOT, "broker/proto/cuda_abi.h"), help="header with the types")
	parser.add_argument("--root", default=ROOT, help="where libgleamcuda/ and broker/ lie")
	parser.add_argument("files", nargs="+")
	options = parser.parse_args()

	errors = Errors()
	lock_path = os.path.join(os.path.dirname(options.files[0]), "numbers.lock")
	description = Description(options.files, errors)
	if not errors:
		description.abi = Abi(options.abi)
		check.Checker(description, description.abi, errors, options.root).run()
	if not errors:
		numbers = lock.lock_read(lock_path, errors)
		lock.lock_check(description, numbers, lock_path, errors, options.lock)
	if errors:
		print("\n".join(errors.lines()), file=sys.stderr)
		return 1
	if options.lock:
		lock.lock_write(lock_path, description, numbers)
	elif options.out:
		out = Output(options.out)
		for emitter in EMITTERS:
			emitter.emit(description, out)
	return 0


if __name__ == "__main__":
	sys.exit(main())
