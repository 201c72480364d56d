#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which functions of the driver API are called by programs that check results.

coverage.py --api FOLDER --logs FOLDER [--out FILE] [--least N]

--api is libgleamcuda/api. --logs has a NAME.log for each program NAME: what a client's gleamd wrote at level debug while
the program ran, in which its counts stand. Functions count by the name that programs ask cuGetProcAddress for, so versions
and per-thread variants of one are one. What is refused does not count, whoever calls it. Ends with 1 when fewer than N
functions are called.
"""

import argparse
import glob
import os
import re
import sys
import tomllib

CALLS = re.compile(r'pid \d+: calls((?: \w+=\d+)+)$')
# Bodies that check their arguments and then refuse, or have one answer to everything: they don't count either.
ALWAYS = {
    'cuCtxDisablePeerAccess': 'no device reaches another\'s memory yet (cuDeviceCanAccessPeer says so)',
    'cuCtxEnablePeerAccess': 'no device reaches another\'s memory yet (cuDeviceCanAccessPeer says so)',
    'cuLaunchCooperativeKernelMultiDevice': 'grids over several devices synchronise through memory that the network can\'t share',
    'cuLibraryGetUnifiedFunction': 'functions for host and device alike need a host that shares memory with the GPU',
    'cuMemExportToShareableHandle': 'memory can\'t be passed between the workers of a server yet',
    'cuMemImportFromShareableHandle': 'memory can\'t be passed between the workers of a server yet',
    'cuMemGetHandleForAddressRange': 'devices on this machine can\'t reach a GPU of another (dma-buf)',
    'cuMemPoolExportPointer': 'pools can\'t be shared between processes yet',
    'cuMemPoolExportToShareableHandle': 'pools can\'t be shared between processes yet',
    'cuMemPoolImportFromShareableHandle': 'pools can\'t be shared between processes yet',
    'cuMemPoolImportPointer': 'pools can\'t be shared between processes yet',
}
# Exported, but in no header of CUDA's: not counted among the functions.
NOT_PUBLIC = {'cuEGLApiInit', 'cuMemGetAttribute'}


class Function:
    def __init__(self, base):
        self.base = base
        self.family = ''
        self.served = False
        self.why = ''
        self.programs = {}


def describe(folder):
    """Functions by base name, and the base name of each exported one."""
    functions, bases = {}, {}
    for path in sorted(glob.glob(os.path.join(folder, '*.toml'))):
        if os.path.basename(path) == 'attributes.toml':
            continue
        with open(path, 'rb') as file:
            entries = tomllib.load(file)
        title = entries.pop('family')['title']
        for name, entry in entries.items():
            if entry.get('internal'):
                continue
            base = entry.get('base', name)
            function = functions.setdefault(base, Function(base))
            function.family = title
            # A version that stands for another is served as that one is.
            real = entries[entry['same']] if 'same' in entry else entry
            if base in ALWAYS:
                function.why = ALWAYS[base]
            elif real.get('todo'):
                function.why = function.why or 'not built yet'
            elif real['class'] == 'refuse':
                function.why = function.why or real['why']
            else:
                function.served = True
            for variant in ('', '_ptsz', '_ptds'):
                bases[name + variant] = base
    for name in NOT_PUBLIC:
        functions.pop(name, None)
    return functions, bases


def count(functions, bases, folder):
    """Enter who calls what; the names of programs."""
    programs = []
    for path in sorted(glob.glob(os.path.join(folder, '*.log'))):
        program = os.path.basename(path)[:-len('.log')]
        programs.append(program)
        with open(path, encoding='utf-8', errors='replace') as lines:
            for line in lines:
                found = CALLS.search(line.rstrip('\n'))
                for pair in found.group(1).split() if found else ():
                    name, calls = pair.split('=')
                    function = functions.get(bases.get(name, ''))
                    if function:
                        function.programs[program] = function.programs.get(program, 0) + int(calls)
    return programs


def report(functions, programs):
    called = [f for f in functions.values() if f.served and f.programs]
    served = [f for f in functions.values() if f.served]
    lines = [
        '# Which functions are called by tests',
        '',
        'Made by `make coverage` from what the programs under `tests/cuda` call through both daemons and the software GPU; '
        'change those.',
        'Each of them checks results. Versions and per-thread variants of a function are one; what is refused does not count.',
        '',
        '- %d functions' % len(functions),
        '- %d served, %d refused' % (len(served), len(functions) - len(served)),
        '- **%d called by a test that checks a result**' % len(called),
        '- programs: %s' % ', '.join(programs),
        '',
    ]
    for family in sorted({f.family for f in functions.values()}):
        lines += ['## ' + family, '', '| function | called by |', '| --- | --- |']
        for function in sorted((f for f in functions.values() if f.family == family), key=lambda f: f.base):
            if not function.served:
                text = 'refused: ' + function.why
            elif function.programs:
                names = sorted(function.programs, key=lambda p: (-function.programs[p], p))
                text = ', '.join(names[:4]) + (' and %d more' % (len(names) - 4) if len(names) > 4 else '')
            else:
                text = 'nobody'
            lines.append('| %s | %s |' % (function.base, text))
        lines.append('')
    return '\n'.join(lines), len(called)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--api', required=True)
    parser.add_argument('--logs', required=True)
    parser.add_argument('--out')
    parser.add_argument('--least', type=int, default=0)
    options = parser.parse_args()
    functions, bases = describe(options.api)
    programs = count(functions, bases, options.logs)
    if not programs:
        sys.exit('coverage.py: no logs in %s' % options.logs)
    text, called = report(functions, programs)
    if options.out:
        with open(options.out, 'w', encoding='utf-8') as file:
            file.write(text)
    print('%d of %d functions are called by a test that checks a result' % (called, len(functions)))
    if called < options.least:
        missing = [f.base for f in functions.values() if f.served and not f.programs]
        print('at least %d should be; served and called by nobody: %s' % (options.least, ' '.join(sorted(missing))))
        sys.exit(1)


if __name__ == '__main__':
    main()
