#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds broker/softgpu/soft_cuda.h against the toolkit's cuda.h: every number and every structure's layout.

Skipped (77) where there is no toolkit. The two headers define the same names, so each is compiled alone into a
program that prints what it has, and the prints are compared.
"""

import os
import re
import subprocess
import sys
import tempfile

TOOLKIT = os.environ.get('CUDA_PATH', '/usr/local/cuda') + '/include'
OURS = 'broker/softgpu/soft_cuda.h'

# Ours in one word where cuda.h has a nested structure, or where one of ours serves for two of theirs.
FIELDS = {
    'CUstreamBatchMemOpParams': {'wait_value.address': 'waitValue.address', 'wait_value.value': 'waitValue.value',
                                 'wait_value.flags': 'waitValue.flags', 'write_value.value64': 'writeValue.value64',
                                 'flush.flags': 'flushRemoteWrites.flags', 'barrier.flags': 'memoryBarrier.flags'},
    'CUDA_RESOURCE_DESC': {'res.array.hArray': 'res.array.hArray', 'res.linear.sizeInBytes': 'res.linear.sizeInBytes',
                           'res.pitch2D.pitchInBytes': 'res.pitch2D.pitchInBytes', 'flags': 'flags'},
    'CUlaunchAttributeValue': {'cooperative': 'cooperative', 'priority': 'priority', 'cluster.z': 'clusterDim.z',
                               'event.flags': 'programmaticEvent.flags',
                               'event.event': 'launchCompletionEvent.event', 'carveout': 'sharedMemCarveout'},
}
PLAIN = ['CUDA_MEMCPY2D', 'CUDA_MEMCPY3D', 'CUDA_ARRAY_DESCRIPTOR', 'CUDA_ARRAY3D_DESCRIPTOR', 'CUDA_TEXTURE_DESC',
         'CUDA_RESOURCE_VIEW_DESC', 'CUmemLocation', 'CUmemAllocationProp', 'CUmemAccessDesc', 'CUmemPoolProps',
         'CUlaunchAttribute', 'CUlaunchConfig', 'CUDA_KERNEL_NODE_PARAMS', 'CUDA_MEMSET_NODE_PARAMS',
         'CUDA_HOST_NODE_PARAMS', 'CUDA_BATCH_MEM_OP_NODE_PARAMS', 'CUDA_GRAPH_INSTANTIATE_PARAMS', 'CUgraphEdgeData',
         'CUgraphExecUpdateResultInfo', 'CUdevprop', 'CUctxCreateParams', 'CUuuid']


def structure_fields(text, name):
    """Plain member names of one of our structures."""
    body = re.search(r'typedef struct (?:\w+) \{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\} %s;' % name, text)
    if not body:
        sys.exit('%s: no structure %s' % (OURS, name))
    fields = []
    inner = re.sub(r'/\*.*?\*/', '', body.group(1), flags=re.S)
    inner = re.sub(r'struct \{[^{}]*\} (\w+);', r'int \1;', inner)
    for line in inner.split(';'):
        match = re.search(r'([\w ,*\[\]]+)$', line.strip())
        if not match:
            continue
        for field in match.group(1).split(','):
            found = re.search(r'(\w+)(?:\[\w+\])?\s*$', field)
            if found:
                fields.append(found.group(1))
    return fields


def program(header, names, structures, ours):
    lines = ['#include <stdio.h>', '#include <stddef.h>', '#include "%s"' % header, 'int main(void) {']
    for name in names:
        lines.append('printf("%s %%llx\\n", (unsigned long long)(%s));' % (name, name))
    for structure, fields in structures.items():
        lines.append('printf("sizeof %s %%zu\\n", sizeof(%s));' % (structure, structure))
        for mine, theirs in fields.items():
            lines.append('printf("%s.%s %%zu\\n", offsetof(%s, %s));' % (structure, mine, structure,
                                                                        mine if ours else theirs))
    lines.append('return 0; }')
    return '\n'.join(lines)


def run(text, includes):
    with tempfile.TemporaryDirectory() as folder:
        source, binary = folder + '/abi.c', folder + '/abi'
        with open(source, 'w', encoding='utf-8') as output:
            output.write(text)
        subprocess.run(['cc', '-w', '-std=gnu11'] + includes + ['-o', binary, source], check=True)
        return subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
    if not os.path.exists(TOOLKIT + '/cuda.h'):
        print('no cuda.h under ' + TOOLKIT)
        sys.exit(77)
    with open(OURS, encoding='utf-8') as header:
        text = header.read()
    with open(TOOLKIT + '/cuda.h', encoding='utf-8') as header:
        if '#define CUDA_VERSION 13000' not in header.read():
            print('the toolkit is not 13.0')
            sys.exit(77)
    names = sorted(set(re.findall(r'^\t?(?:#define )?((?:CU|CUDA)_[A-Z0-9_]+)(?: =|\s+[0-9(])', text, re.M)))
    # Marks of ours, and codes that cuda.h has under other names or as expressions over types.
    names = [name for name in names if name not in ('CU_FUNC_ATTRIBUTE_MAX', 'CU_STREAM_WAIT_VALUE_COMPARE')]
    structures = {name: {field: field for field in structure_fields(text, name)} for name in PLAIN}
    structures['CUlaunchAttribute'] = {'id': 'id', 'value': 'value'}
    structures.update(FIELDS)
    mine = run(program(OURS, names, structures, True), ['-I.'])
    theirs = run(program('cuda.h', names, structures, False), ['-I' + TOOLKIT])
    wrong = ['%s here, %s in cuda.h' % pair for pair in zip(mine, theirs) if pair[0] != pair[1]]
    print('\n'.join(wrong))
    print('%d passed, %d failed, 0 skipped' % (len(mine) - len(wrong), len(wrong)))
    sys.exit(1 if wrong or len(mine) < 200 else 0)


main()
