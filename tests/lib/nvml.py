#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
NVML by ctypes, as pynvml and what stands on it (gpustat, PyTorch, nvtop's reader) use it: nvml.py [COMMAND]...

	list		a table of the GPUs, as gpustat shows it
	json		all that can be told, for tests
	torch		what torch.cuda asks to count devices without starting CUDA
	bad		wrong arguments and order: exits 1 if an answer is not NVML's

It works with a driver's NVML as well.
"""

import ctypes
import json
import sys

NONE = 'N/A'
SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 0, 1, 2, 3, 6, 7


class Memory(ctypes.Structure):
    _fields_ = [('total', ctypes.c_ulonglong), ('free', ctypes.c_ulonglong), ('used', ctypes.c_ulonglong)]


class Memory2(ctypes.Structure):
    _fields_ = [('version', ctypes.c_uint), ('total', ctypes.c_ulonglong), ('reserved', ctypes.c_ulonglong),
                ('free', ctypes.c_ulonglong), ('used', ctypes.c_ulonglong)]


class Rates(ctypes.Structure):
    _fields_ = [('gpu', ctypes.c_uint), ('memory', ctypes.c_uint)]


class Pci(ctypes.Structure):
    _fields_ = [('legacy', ctypes.c_char * 16), ('domain', ctypes.c_uint), ('bus', ctypes.c_uint), ('device', ctypes.c_uint),
                ('id', ctypes.c_uint), ('subsystem', ctypes.c_uint), ('text', ctypes.c_char * 32)]


class Process(ctypes.Structure):
    _fields_ = [('pid', ctypes.c_uint), ('memory', ctypes.c_ulonglong), ('gpu_instance', ctypes.c_uint),
                ('compute_instance', ctypes.c_uint)]


nvml = ctypes.CDLL('libnvidia-ml.so.1')
nvml.nvmlErrorString.restype = ctypes.c_char_p


class Failed(Exception):
    pass


def must(code, what):
    if code:
        raise Failed(f'{what}: {code} ({nvml.nvmlErrorString(code).decode()})')


def handle(index):
    device = ctypes.c_void_p()
    must(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)), f'GPU {index}')
    return device


def count():
    number = ctypes.c_uint()
    must(nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)), 'count')
    return number.value


def text(name, *args):
    buffer = ctypes.create_string_buffer(96)
    code = getattr(nvml, name)(*args, buffer, 96)
    return NONE if code == NOT_SUPPORTED else (must(code, name), buffer.value.decode())[1]


def number(name, device, *args):
    value = ctypes.c_uint()
    code = getattr(nvml, name)(device, *args, ctypes.byref(value))
    return NONE if code == NOT_SUPPORTED else (must(code, name), value.value)[1]


def struct(name, device, value):
    code = getattr(nvml, name)(device, ctypes.byref(value))
    if code == NOT_SUPPORTED:
        return NONE
    must(code, name)
    return {field: getattr(value, field) for field, _ in value._fields_}


def processes(device):
    """As pynvml: ask how many, then with some room more."""
    some = ctypes.c_uint(0)
    code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(some), None)
    if code == SUCCESS:
        return []
    if code != INSUFFICIENT_SIZE:
        must(code, 'processes')
    some.value += 5
    room = (Process * some.value)()
    must(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(some), room), 'processes')
    return [{'pid': p.pid, 'memory': p.memory} for p in room[:some.value]]


def gpu(index):
    device = handle(index)
    major, minor = ctypes.c_int(), ctypes.c_int()
    pci = struct('nvmlDeviceGetPciInfo_v3', device, Pci())
    pci = {key: value.decode() if isinstance(value, bytes) else value for key, value in pci.items()}
    must(nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)), 'capability')
    return {
        'name': text('nvmlDeviceGetName', device), 'uuid': text('nvmlDeviceGetUUID', device), 'pci': pci,
        'memory': struct('nvmlDeviceGetMemoryInfo', device, Memory()),
        'memory2': struct('nvmlDeviceGetMemoryInfo_v2', device, Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)),
        'rates': struct('nvmlDeviceGetUtilizationRates', device, Rates()),
        'temperature': number('nvmlDeviceGetTemperature', device, 0), 'power': number('nvmlDeviceGetPowerUsage', device),
        'limit': number('nvmlDeviceGetEnforcedPowerLimit', device), 'fan': number('nvmlDeviceGetFanSpeed', device),
        'clocks': [number('nvmlDeviceGetClockInfo', device, which) for which in range(4)],
        'max_clocks': [number('nvmlDeviceGetMaxClockInfo', device, which) for which in range(4)],
        'pcie': [number('nvmlDeviceGetCurrPcieLinkGeneration', device), number('nvmlDeviceGetCurrPcieLinkWidth', device)],
        'capability': [major.value, minor.value], 'processes': processes(device),
    }


def system():
    version = ctypes.c_int()
    code = nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version))
    return {'driver': text('nvmlSystemGetDriverVersion'), 'cuda': NONE if code else version.value,
            'nvml': text('nvmlSystemGetNVMLVersion')}


def show():
    print('{driver}  CUDA {cuda}'.format(**system()))
    for index in range(count()):
        g = gpu(index)
        memory = g['memory']
        used = NONE if memory == NONE else f'{memory["used"] >> 20} / {memory["total"] >> 20} MB'
        busy = NONE if g['rates'] == NONE else f'{g["rates"]["gpu"]} %'
        power = NONE if g['power'] == NONE else f'{g["power"] // 1000} W'
        print(f'[{index}] {g["name"]} | {g["temperature"]}°C, {busy}, {power} | {used} |',
              ' '.join(f'{p["pid"]}({p["memory"] >> 20}M)' for p in g['processes']))


def torch():
    """torch.cuda._raw_device_count_nvml and _raw_device_uuid_nvml."""
    must(nvml.nvmlInit(), 'nvmlInit')
    number = ctypes.c_int(-1)
    must(nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)), 'count')
    for index in range(number.value):
        print(text('nvmlDeviceGetUUID', handle(index)))


def bad():
    wrong = []

    def expect(code, want, what):
        if code != want:
            wrong.append(f'{what}: {code}, not {want}')

    value = ctypes.c_uint()
    must(nvml.nvmlShutdown(), 'nvmlShutdown')
    expect(nvml.nvmlShutdown(), UNINITIALIZED, 'a second end')
    expect(nvml.nvmlDeviceGetCount_v2(ctypes.byref(value)), UNINITIALIZED, 'a count after the end')
    must(nvml.nvmlInit_v2(), 'nvmlInit_v2')
    device = handle(0)
    expect(nvml.nvmlDeviceGetCount_v2(None), INVALID_ARGUMENT, 'a count to nowhere')
    expect(nvml.nvmlDeviceGetHandleByIndex_v2(999, ctypes.byref(ctypes.c_void_p())), INVALID_ARGUMENT, 'GPU 999')
    expect(nvml.nvmlDeviceGetHandleByUUID(b'GPU-00000000-0000-0000-0000-000000000000', ctypes.byref(ctypes.c_void_p())), NOT_FOUND,
           'a UUID of nobody')
    expect(nvml.nvmlDeviceGetName(device, ctypes.create_string_buffer(2), 2), INSUFFICIENT_SIZE, 'a name in two bytes')
    expect(nvml.nvmlDeviceGetClockInfo(device, 9, ctypes.byref(value)), INVALID_ARGUMENT, 'clock 9')
    found = ctypes.c_void_p()
    for finder, key in (('nvmlDeviceGetHandleByUUID', text('nvmlDeviceGetUUID', device)),
                        ('nvmlDeviceGetHandleByPciBusId_v2', gpu(0)['pci']['text'])):
        must(getattr(nvml, finder)(key.encode(), ctypes.byref(found)), finder)
        expect(found.value, device.value, f'{finder}({key})')
    if hasattr(nvml, 'gleam_version'):
        expect(nvml.nvmlDeviceSetPersistenceMode(device, 1), NOT_SUPPORTED, 'a setting')
        expect(nvml.nvmlInternalGetExportTable(None, None), NOT_SUPPORTED, 'private tables')
        expect(nvml.nvmlDeviceGetName(ctypes.c_void_p(1), ctypes.create_string_buffer(96), 96), INVALID_ARGUMENT, 'garbage')
    print('\n'.join(wrong) or 'as it should be')
    return bool(wrong)


def main():
    status = 0
    must(nvml.nvmlInit_v2(), 'nvmlInit_v2')
    for command in sys.argv[1:] or ['list']:
        if command == 'list':
            show()
        elif command == 'json':
            print(json.dumps({'system': system(), 'gpus': [gpu(index) for index in range(count())]}, indent=1))
        elif command == 'torch':
            torch()
        elif command == 'bad':
            status |= bad()
        else:
            raise Failed(f'nvml.py knows list, json, torch and bad, not {command}')
    must(nvml.nvmlShutdown(), 'nvmlShutdown')
    return status


if __name__ == '__main__':
    try:
        sys.exit(main())
    except Failed as error:
        print(error)
        sys.exit(1)
