#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what the software GPU exports beside its written entry points.

soft_symbols.py NAMES OUTPUT.c OUTPUT.h SOURCE...

NAMES lists every name of the driver API. A name that a SOURCE defines with SOFT_API or SOFT_ALIAS is there; the
per-thread-stream variant of one becomes a wrapper; every other name is refused. The table of all names for
cuGetProcAddress follows. OUTPUT.h has the prototypes of all that is there, for tests.
"""

import re
import sys

API = re.compile(r'^SOFT_API\((\w+),\s*([^()]*)\)\s*\{', re.M)
ALIAS = re.compile(r'^SOFT_ALIAS\((\w+),\s*(\w+)\);', re.M)


def fail(message):
    sys.exit('soft_symbols.py: ' + message)


def names_read(path):
    names = []
    with open(path, encoding='utf-8') as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith('#') or not line.strip():
                continue
            fields = line.rstrip('\n').split('\t')
            if len(fields) != 4 or not fields[2].isdigit() or fields[3] not in ('legacy', 'ptds', 'ptsz'):
                fail('%s:%d: not "name, base, version, kind"' % (path, number))
            names.append((fields[0], fields[1], int(fields[2]), fields[3]))
    return names


def sources_read(paths):
    """Parameter lists by name."""
    defined, aliases = {}, {}
    for path in paths:
        with open(path, encoding='utf-8') as source:
            text = source.read()
        for name, params in API.findall(text):
            if name in defined:
                fail('%s: %s is defined twice' % (path, name))
            defined[name] = ' '.join(params.split())
        for name, target in ALIAS.findall(text):
            aliases[name] = (target, path)
    for name, (target, path) in aliases.items():
        if target not in defined:
            fail('%s: %s is an alias of %s, which is not defined' % (path, name, target))
        if name in defined:
            fail('%s: %s is defined twice' % (path, name))
        defined[name] = defined[target]
    return defined


def argument_names(params):
    if params == 'void':
        return ''
    return ', '.join(re.search(r'(\w+)$', param.strip()).group(1) for param in params.split(','))


def main():
    if len(sys.argv) < 5:
        fail('usage: NAMES OUTPUT.c OUTPUT.h SOURCE...')
    names = names_read(sys.argv[1])
    defined = sources_read(sys.argv[4:])
    known = {name for name, _, _, _ in names}
    for name in sorted(defined):
        if name not in known:
            fail('%s is defined but not among the names' % name)
    out = ['/* Made by soft_symbols.py from soft_symbols.txt and the sources; change those. */',
           '#include <stdatomic.h>', '#include "broker/softgpu/soft_symbols.h"', '']
    for name, _, _, _ in sorted(names):
        if name in defined:
            out.append('CUresult %s(%s);' % (name, defined[name]))
            continue
        plain = re.sub(r'_pt[ds][sz]$', '', name)
        if plain != name and plain in defined:
            params = defined[plain]
            out += ['SOFT_API(%s, %s)' % (name, params), '{',
                    '\tCUresult result;', '',
                    '\tsoft_per_thread_calls++;',
                    '\tresult = %s(%s);' % (plain, argument_names(params)),
                    '\tsoft_per_thread_calls--;',
                    '\treturn result;', '}']
            continue
        out += ['SOFT_API(%s, void)' % name, '{', '\tstatic _Atomic int told;', '',
                '\treturn soft_refuse("%s", &told);' % name, '}']
    out += ['', 'const struct soft_symbol soft_symbols[] = {']
    for name, base, version, kind in sorted(names, key=lambda entry: (entry[1], entry[2], entry[0])):
        out.append('\t{ "%s", "%s", %d, %s, (void (*)(void))%s },' % (
            base, name, version, 'SOFT_SYMBOL_LEGACY' if kind == 'legacy' else 'SOFT_SYMBOL_PER_THREAD', name))
    out += ['};', 'const unsigned int soft_symbol_count = sizeof(soft_symbols) / sizeof(soft_symbols[0]);', '']
    with open(sys.argv[2], 'w', encoding='utf-8') as output:
        output.write('\n'.join(out))
    with open(sys.argv[3], 'w', encoding='utf-8') as output:
        output.write('/* Made by soft_symbols.py; see there. */\n#include "broker/proto/cuda_abi.h"\n')
        for name in sorted(defined):
            output.write('CUresult %s(%s);\n' % (name, defined[name]))
            for variant, base, _, kind in names:
                if variant in (name + '_ptds', name + '_ptsz'):
                    output.write('CUresult %s(%s);\n' % (variant, defined[name]))


main()
